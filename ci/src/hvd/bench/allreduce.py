"""How long an allreduce takes: Horovod beside mpi4py and PyTorch, by message size and ranks."""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Dict, List, Tuple

from hvd.bench.result import Part, Row
from hvd.build import pipeline
from hvd.build.pipeline import Options
from hvd.core import paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.run import Run
from hvd.model import built
from hvd.model.environment import Environment
from hvd.smoke.launch import LAUNCHERS, Launcher, Target, environment, find_program

PROGRAM = pathlib.Path(__file__).with_name("program_allreduce.py")
RANKS = (1, 2, 4, 8)
#: Horovod's controller, and what it is compared with in the same processes.
PEERS = {"mpi": "mpi4py", "gloo": "torch.distributed, Gloo"}
#: Horovod's row for each of its controllers.
OURS = {"mpi": "Horovod, MPI", "gloo": "Horovod, Gloo"}
#: Seconds that one launch may take.
_TIMEOUT = 600.0


def run(subject: Environment, options: Options, ranks: Tuple[int, ...] = RANKS) -> Part:
    """Time allreduces of the built environment, on each number of ``ranks``.

    It is built first, where it is not.

    Raises:
        StageFailed: it could not be built, or a launch failed.
    """
    done = pipeline.run(subject, options, last="build")
    found = built.find(subject.name, done.engine)
    variables = found.run_environment()
    target = Target(pathlib.Path(shutil.which("python", path=variables["PATH"])), variables)
    current = Run(subject.name, "bench", options.verbose)
    frameworks = {name: version for name, version in found.frameworks.items() if version}
    part = Part("allreduce", [])
    part.versions = {"Horovod": found.version, **frameworks, found.mpi.name: found.mpi.version}
    process.adopt_orphans()
    with current.stage("smoke"):
        if "pytorch" not in found.frameworks:
            raise HvdError(
                f"{subject.name} has no PyTorch, with whose tensors it is timed",
                "bench an environment that has: ./hvd bench local-hvd",
            )
        for count in ranks:
            for launcher in _launchers(found.controllers):
                with current.step(f"{launcher.name}, {count}") as task:
                    out = current.logs / "allreduce" / f"{launcher.controller}-{count}"
                    part.rows += launch(launcher, target, out, count, task.log)
    return part


def _launchers(controllers: Tuple[str, ...]) -> List[Launcher]:
    """One for each controller, with nothing but it."""
    plain = [each for each in LAUNCHERS if each.device == "cpu" and not each.operations]
    first = {each.controller: each for each in reversed(plain)}
    return [first[name] for name in PEERS if name in controllers]


def launch(
    launcher: Launcher, target: Target, out: pathlib.Path, ranks: int, log: pathlib.Path
) -> List[Row]:
    """Run the program on ``ranks`` ranks.

    Raises:
        HvdError: it failed, or lasted longer than it may.
    """
    stamp.clear(out)
    out.mkdir(parents=True)
    words = launcher.command(find_program(target, launcher.program), ranks)
    words += [str(target.python), str(PROGRAM), launcher.controller, str(out)]
    process.run(words, log=log, env=environment(launcher, target, _TIMEOUT), timeout=_TIMEOUT)
    return rows(launcher.controller, out, ranks)


def rows(controller: str, out: pathlib.Path, ranks: int) -> List[Row]:
    """What the ranks recorded in ``out``: of each allreduce the time of the slowest rank.

    Raises:
        HvdError: a rank has recorded nothing.
    """
    names = {"horovod": OURS[controller], "peer": PEERS[controller]}
    records = []
    for rank in range(ranks):
        path = out / f"rank-{rank}.json"
        if not path.exists():
            raise HvdError(f"rank {rank} recorded nothing in {paths.shorten(out)}")
        records.append(json.loads(path.read_text()))
    merged: Dict[Tuple[str, int], List[float]] = {}
    for method, size, _ in records[0]:
        merged[method, size] = []
    for method, size in merged:
        each = [s for record in records for m, b, s in record if (m, b) == (method, size)]
        merged[method, size] = [max(times) for times in zip(*each)]
    return [
        Row(names[method], seconds, ranks=ranks, bytes=size)
        for (method, size), seconds in merged.items()
    ]
