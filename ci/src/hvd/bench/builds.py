"""Builds by plain pip, the pip engine, Spack, and from a binary cache: times and sizes."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import List, Tuple

from hvd.bench.result import Benchmark, Row, timed
from hvd.build import engine_spack
from hvd.build.engine_pip import PipEngine, PipSolution
from hvd.build.engine_spack import SpackEngine, SpackSolution
from hvd.build.pipeline import Options
from hvd.core import lock, paths, process, stamp
from hvd.core.run import Run
from hvd.deliver import cache
from hvd.model.environment import DEFAULT, HOROVOD, Environment, derive
from hvd.report import report_stage, text

#: The row that the others are compared with.
REFERENCE = "plain pip"
#: The patches that make builds faster.
FASTER = ("symbols.patch", "common-objects.patch", "torch-headers.patch")
#: What is built beside the default environment, and its spec.
BOTH = "PyTorch and TensorFlow"
SPEC = f"{HOROVOD}+mpi+gloo~cuda~rocm frameworks=pytorch,tensorflow"
#: The rows, and the steps that each times.
NOTES = {
    REFERENCE: "pip install of the source tree, without the patches for faster builds",
    "hvd pip": "unpack, patch, virtual environment, pip install",
    "spack install": "py-horovod only; its dependencies are installed",
    "binary cache": "py-horovod from a binary cache: verify, unpack, relocate",
}


def run(environment: Environment, options: Options, repeat: int = 1) -> Benchmark:
    """Build ``environment`` in each way, ``repeat`` times in turn, and report times and sizes.

    Then do so for `BOTH`, if it is the default one.  The reference is ``pip install`` of the
    source tree with all patches but `FASTER`: the released tree does not compile with current
    versions of PyTorch.

    Raises:
        StageFailed: a build failed.
    """
    process.adopt_orphans()
    # Horovod's CMake uses ccache if it finds one; Spack hides it from a build
    # https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt
    os.environ["CCACHE_DISABLE"] = "1"
    part = _measure(environment, environment.name, options, repeat)
    if environment.name == DEFAULT:
        both = _measure(derive(environment, SPEC), BOTH, options, repeat)
        part.rows += both.rows
        part.versions.update(both.versions)
    return part


def _measure(environment: Environment, subject: str, options: Options, repeat: int) -> Benchmark:
    """Return the rows of one environment, and write its report."""
    part = Benchmark("builds", [Row(name, [], subject, note=NOTES[name]) for name in NOTES])
    common = {"python": options.python, "jobs": options.jobs, "fresh": True}
    pip_engine = PipEngine(environment, **common)
    current = Run(environment.name, "bench", options.verbose)
    with lock.exclusive(paths.state() / "lock"):
        with current.stage("setup"):
            with current.step("Spack and its packages") as task:
                located = engine_spack.locate(options.sources, task)
            spack_engine = SpackEngine(environment, located, **common)
            spack_found = spack_engine.setup(current)
            pip_found = pip_engine.setup(current)
        with current.stage("concretize"):
            spack = spack_engine.concretize(current, spack_found)
            pip = pip_engine.concretize(current, pip_found)
        with current.stage("build"):
            with current.step("spack install --only dependencies") as task:
                arguments = ("install", "--only", "dependencies", f"-j{options.jobs}")
                located.fetch_sources(environment.directory, task.log, task.say)
                located.run("-e", environment.directory, *arguments, log=task.log)
            for _ in range(repeat):
                for row, (seconds, size) in zip(part.rows, _once(current, pip, spack)):
                    row.seconds.append(seconds)
                    row.installed = size
        part.versions = spack.versions()
        report_stage(
            current,
            paths.state() / "reports" / f"{environment.name}-bench",
            lambda: {
                "environment": environment.name,
                "engine": "plain pip, hvd's pip engine and Spack",
                "specs": environment.specs,
                "versions": part.versions,
                "build_times": [
                    {
                        "engine": row.name,
                        "seconds": row.median,
                        "ratio": part.ratio(row.name, REFERENCE, subject=row.subject),
                        "note": row.note,
                    }
                    for row in part.rows
                ],
            },
        )
    return part


def _once(run: Run, pip: PipSolution, spack: SpackSolution) -> List[Tuple[float, int]]:
    """Build in each way; return seconds and bytes in the order of `NOTES`."""
    stamp.clear(pip.engine.directory)
    with run.step("plain pip install") as task:
        source = pip.prepare(task.log, without=FASTER)
        plain = timed(pip.pip_install, source, task.log)
        task.say(f"{plain:.1f} s in pip itself")
    made = [(plain, _size(pip.engine.venv))]
    made.append((timed(pip.build, run), _size(pip.engine.venv)))
    spack.build(run)
    # only the last step: the others uninstall, and list sources
    seconds = run.stages[-1].steps[-1].seconds
    with run.step("installed size") as task:
        arguments = ("location", "--install-dir", HOROVOD)
        done = spack.engine.spack.run("-e", spack.environment.directory, *arguments, log=task.log)
        prefix = pathlib.Path(done.output.splitlines()[-1])
        made.append((seconds, _size(prefix)))
        task.say(text.size(made[-1][1]))
    with tempfile.TemporaryDirectory(prefix="hvd-") as scratch:
        # unsigned: signatures take milliseconds, and would need a key
        subject = cache.named(scratch, unsigned=True)
        with run.step("spack buildcache push") as task:
            cache.push(spack.engine.spack, spack.environment, subject, "", task)
        with run.step(f"spack uninstall {HOROVOD}") as task:
            arguments = ("uninstall", "--yes-to-all", "--force", HOROVOD)
            spack.engine.spack.run("-e", spack.environment.directory, *arguments, log=task.log)
        installed = (spack.engine.spack, spack.environment, spack.specs, subject, run)
        made.append((timed(cache.install, *installed), _size(prefix)))
    return made


def _size(prefix: pathlib.Path) -> int:
    """Return the size of the package ``horovod`` that is installed there, in bytes."""
    (package,) = prefix.glob("lib/python3*/site-packages/horovod")
    return sum(path.stat().st_size for path in package.rglob("*") if path.is_file())
