"""Wall times of allreduces by message size and ranks: Horovod, mpi4py and PyTorch."""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import List, Tuple

from hvd.bench.result import Benchmark, Row
from hvd.build import pipeline
from hvd.build.pipeline import Options
from hvd.core import paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.run import Run
from hvd.model.environment import Environment
from hvd.smoke.launch import LAUNCHERS, Launcher, Target, environment, find_program

PROGRAM = pathlib.Path(__file__).with_name("program_allreduce.py")
RANKS = (1, 2, 4, 8)
#: Horovod's controller, and its reference in the same processes.
PEERS = {"mpi": "mpi4py", "gloo": "torch.distributed, Gloo"}
#: Horovod's row for each of its controllers.
OURS = {"mpi": "Horovod, MPI", "gloo": "Horovod, Gloo"}
#: Seconds that one launch may take.
_TIMEOUT = 600.0


def run(subject: Environment, options: Options, ranks: Tuple[int, ...] = RANKS) -> Benchmark:
    """Time allreduces of an environment on each number of ``ranks``; build it first if needed.

    Raises:
        StageFailed: the build or a launch failed.
    """
    found = pipeline.run(subject, options, last="build").built
    variables = found.run_environment()
    target = Target(pathlib.Path(shutil.which("python", path=variables["PATH"])), variables)
    current = Run(subject.name, "bench", options.verbose)
    frameworks = {name: version for name, version in found.frameworks.items() if version}
    part = Benchmark("allreduce", [])
    part.versions = {"Horovod": found.version, **frameworks, found.mpi.name: found.mpi.version}
    process.adopt_orphans()
    with current.stage("smoke"):
        if "pytorch" not in found.frameworks:
            raise HvdError(
                f"{subject.name} has no PyTorch, which the benchmark needs",
                "use an environment that has it: ./hvd bench local-hvd",
            )
        for count in ranks:
            for launcher in _launchers(found.controllers):
                with current.step(f"{launcher.name}, {count}") as task:
                    out = current.logs / "allreduce" / f"{launcher.controller}-{count}"
                    part.rows += launch(launcher, target, out, count, task.log)
    return part


def _launchers(controllers: Tuple[str, ...]) -> List[Launcher]:
    """Return the plain launcher of each of ``controllers``."""
    plain = [each for each in LAUNCHERS if each.device == "cpu" and not each.operations]
    first = {each.controller: each for each in reversed(plain)}
    return [first[name] for name in PEERS if name in controllers]


def launch(
    launcher: Launcher, target: Target, out: pathlib.Path, ranks: int, log: pathlib.Path
) -> List[Row]:
    """Run the program on ``ranks`` ranks and return its rows.

    Raises:
        HvdError: it failed or timed out.
    """
    stamp.clear(out)
    out.mkdir(parents=True)
    words = launcher.command(find_program(target, launcher.program), ranks)
    words += [str(target.python), str(PROGRAM), launcher.controller, str(out)]
    process.run(words, log=log, env=environment(launcher, target, _TIMEOUT), timeout=_TIMEOUT)
    return rows(launcher.controller, out, ranks)


def rows(controller: str, out: pathlib.Path, ranks: int) -> List[Row]:
    """Return a row for each method and size, with the times of the slowest rank.

    Args:
        controller: Horovod's.
        out: directory with the records of the ranks.
        ranks: number of ranks.

    Raises:
        HvdError: a rank left no record.
    """
    names = {"horovod": OURS[controller], "peer": PEERS[controller]}
    records = []
    for rank in range(ranks):
        path = out / f"rank-{rank}.json"
        if not path.exists():
            raise HvdError(f"rank {rank} recorded nothing in {paths.shorten(out)}")
        found = json.loads(path.read_text())
        records.append({(method, size): seconds for method, size, seconds in found})
    return [
        Row(
            names[method],
            [max(times) for times in zip(*(record[method, size] for record in records))],
            ranks=ranks,
            bytes=size,
        )
        for method, size in records[0]
    ]
