"""How long builds take, all in one run: plain pip, the pip engine, and ``spack install``."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List

from hvd import lock, machine, paths, process, stamp
from hvd.engine_pip import PipEngine
from hvd.engine_spack import SpackEngine
from hvd.environment import Environment
from hvd.pipeline import Options
from hvd.report import RunReport, write_report
from hvd.run import Run


def run(environment: Environment, options: Options) -> List[Dict[str, Any]]:
    """Build ``environment`` in three ways and report the times.

    The baseline is ``pip install`` of the patched source tree (the released one does not
    compile with today's PyTorch) with the same flags into the same kind of virtual environment.

    Returns:
        Rows of :class:`hvd.report.RunReport`'s ``build_times``: seconds, and their ratio to
        the baseline.

    Raises:
        StageFailed: a build failed.
    """
    process.adopt_orphans()
    common = {"python": options.python, "jobs": options.jobs, "fresh": True}
    pip = PipEngine(environment, **common)
    spack = SpackEngine(environment, options.sources, **common)
    current = Run(environment.name, "bench", options.verbose)
    times: Dict[str, float] = {}
    with lock.exclusive(paths.STATE / "lock"):
        with current.stage("setup"):
            with current.step("Spack and its packages") as task:
                spack.locate(task)
            spack.setup(current)
            pip.setup(current)
        with current.stage("concretize"):
            spack.concretize(current)
            pip.concretize(current)
        with current.stage("build"):
            times["plain pip"] = _plain(current, pip)
            times["hvd pip"] = _timed(lambda: pip.build(current))
            spack.build(current)
            # its last step: uninstalling and listing sources are no part of an installation
            times["spack"] = current.stages[-1].steps[-1].seconds
        rows = _rows(times, options.jobs)
        with current.stage("report"), current.step("report") as task:
            directory = paths.STATE / "reports" / f"{environment.name}-bench"
            report = RunReport(
                environment=environment.name,
                engine="plain pip, hvd's pip engine and Spack",
                started=current.started,
                specs=environment.specs,
                versions=spack.versions(),
                host=machine.describe(),
                stages=[stage for stage in current.stages if stage.name != "report"],
                build_times=rows,
            )
            write_report(report, directory)
            task.say(paths.shorten(directory / "report.md"))
    return rows


def _plain(current: Run, pip: PipEngine) -> float:
    """Seconds of a plain ``pip install`` into a fresh virtual environment."""
    stamp.clear(pip.directory)
    with current.step("plain pip install") as task:
        source, flags = pip.prepare(task.log)
        seconds = _timed(lambda: pip.pip_install(source, flags, task.log))
        task.say(f"{seconds:.1f} s in pip itself")
    return seconds


def _rows(times: Dict[str, float], jobs: int) -> List[Dict[str, Any]]:
    notes = {
        "plain pip": f"pip install of the patched tree, same flags, -j{jobs}",
        "hvd pip": "unpack, patch, virtual environment, pip install",
        "spack": "spack install of py-horovod, its dependencies there",
    }
    return [
        {
            "engine": name,
            "seconds": seconds,
            "ratio": seconds / times["plain pip"],
            "note": notes[name],
        }
        for name, seconds in times.items()
    ]


def _timed(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin
