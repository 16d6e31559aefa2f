"""Wall times of collectives by operation, type, message size and ranks: Horovod and its peers."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from typing import Any, Dict, List, Tuple

import numpy

from hvd.bench.result import Collective, Collectives
from hvd.build import pipeline
from hvd.build.pipeline import Options
from hvd.core import paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.run import Run
from hvd.model.environment import Environment
from hvd.smoke.launch import LAUNCHERS, Launcher, Target, environment, find_program

PROGRAM = pathlib.Path(__file__).with_name("program_collectives.py")
#: The ranks of the main page, and those that take turns where there are fewer cores.
RANKS = (2, 4, 8)
#: Horovod's rows by its controller, and those of its peer in the same processes.
OURS = {"mpi": "Horovod, MPI", "gloo": "Horovod, Gloo"}
PEERS = {"mpi": "mpi4py", "gloo": "torch.distributed, Gloo"}
#: Horovod with the switch of waiting.patch off: it waits as released.
RELEASED = {name: f"{ours}, waits as released" for name, ours in OURS.items()}
#: What the tables of sizes, and the goals, are of.
ALLREDUCE = {"operation": "allreduce", "dtype": "float32", "in_place": True}
#: Parts of the program for as many ranks as there are cores, for more, and without the patch.
_ALL = ("allreduce", "collectives", "many", "training")
_MORE = ("allreduce",)
_AS_RELEASED = ("allreduce", "training")
#: Seconds that one launch may take.
_TIMEOUT = 1200.0


def run(subject: Environment, options: Options, ranks: Tuple[int, ...] = RANKS) -> Collectives:
    """Time collectives of an environment on each number of ``ranks``; build it first if needed.

    Raises:
        StageFailed: the build or a launch failed.
    """
    found = pipeline.run(subject, options, last="build").built
    variables = found.run_environment()
    target = Target(pathlib.Path(shutil.which("python", path=variables["PATH"])), variables)
    current = Run(subject.name, "bench", options.verbose)
    frameworks = {name: version for name, version in found.frameworks.items() if version}
    part = Collectives("collectives", [])
    part.versions = {"Horovod": found.version, **frameworks, found.mpi.name: found.mpi.version}
    part.host.update(load=round(os.getloadavg()[0], 2), pinning={})
    process.adopt_orphans()
    with current.stage("smoke"):
        if "pytorch" not in found.frameworks:
            raise HvdError(
                f"{subject.name} has no PyTorch, which the benchmark needs",
                "use an environment that has it: ./hvd bench local-hvd",
            )
        cores = len(os.sched_getaffinity(0))
        for count in ranks:
            for launcher in _launchers(found.controllers):
                parts = _ALL if count <= cores else _MORE
                with current.step(f"{launcher.name}, {count}") as task:
                    out = current.logs / "collectives" / f"{launcher.controller}-{count}"
                    part.rows += launch(launcher, target, out, count, task.log, *parts)
                    part.host["pinning"].setdefault(launcher.name, cores_per_rank(out))
                if count > cores:
                    continue
                with current.step(f"{launcher.name}, {count}, as released") as task:
                    out = out.with_name(f"{out.name}-released")
                    parts = ("--alone", *_AS_RELEASED)
                    part.rows += launch(launcher, target, out, count, task.log, *parts)
    return part


def _launchers(controllers: Tuple[str, ...]) -> List[Launcher]:
    """Return the plain launcher of each of ``controllers``."""
    plain = [each for each in LAUNCHERS if each.device == "cpu" and not each.operations]
    first = {each.controller: each for each in reversed(plain)}
    return [first[name] for name in PEERS if name in controllers]


def launch(
    launcher: Launcher,
    target: Target,
    out: pathlib.Path,
    ranks: int,
    log: pathlib.Path,
    *parts: str,
    seconds: float = 0.4,
) -> List[Collective]:
    """Run parts of the program on ``ranks`` ranks and return its rows.

    Args:
        out: directory for the ranks' records.
        parts: the program's; with ``--alone`` first, Horovod alone, which waits as released.
        seconds: how long each size is called.

    Raises:
        HvdError: it failed, had a wrong result or timed out.
    """
    stamp.clear(out)
    out.mkdir(parents=True)
    alone = [each for each in parts if each == "--alone"]
    words = launcher.command(find_program(target, launcher.program), ranks)
    words += [str(target.python), str(PROGRAM), "--controller", launcher.controller, *alone]
    words += ["--out", str(out), "--seconds", str(seconds), "--parts"]
    words += [each for each in parts if each not in alone]
    variables = environment(launcher, target, _TIMEOUT)
    if alone:
        variables["HOROVOD_WAKE_ON_WAIT"] = "0"
    process.run(words, log=log, env=variables, timeout=_TIMEOUT)
    ours = RELEASED if alone else OURS
    names = {"horovod": ours[launcher.controller], "peer": PEERS[launcher.controller]}
    return rows(names, out, ranks)


def cores_per_rank(out: pathlib.Path) -> int:
    """Return how many cores the launcher let each rank use, by what the ranks recorded."""
    return min(json.loads(path.read_text())["cores"] for path in out.glob("rank-*.json"))


def rows(names: Dict[str, str], out: pathlib.Path, ranks: int) -> List[Collective]:
    """Return what the ranks timed, a call taking as long as on its slowest rank.

    Args:
        names: of the program's methods, on the page.
        out: directory with the records of the ranks.
        ranks: number of ranks.

    Raises:
        HvdError: a rank left no record.
    """
    records: List[List[Dict[str, Any]]] = []
    for rank in range(ranks):
        path = out / f"rank-{rank}.json"
        if not path.exists():
            raise HvdError(f"rank {rank} recorded nothing in {paths.shorten(out)}")
        records.append(json.loads(path.read_text())["calls"])
    found = []
    for same in zip(*records):
        seconds = numpy.max([each["seconds"] for each in same], axis=0)
        least, median, p95, most = numpy.percentile(seconds, [0, 50, 95, 100])
        what = {key: value for key, value in same[0].items() if key not in ("method", "seconds")}
        numbers = {"minimum": least, "median": median, "p95": p95, "maximum": most}
        found.append(
            Collective(
                names[same[0]["method"]],
                ranks=ranks,
                calls=len(seconds),
                **{key: float(value) for key, value in numbers.items()},
                **what,
            )
        )
    return found
