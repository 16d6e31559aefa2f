"""Wall times of collectives by operation, type, message size and ranks: Horovod and its peers."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import statistics
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

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
#: Horovod's rows by its controller, those of its peer, and those of Horovod with the switch of
#: waiting.patch off: it waits as released.
OURS = {"mpi": "Horovod, MPI", "gloo": "Horovod, Gloo"}
PEERS = {"mpi": "mpi4py", "gloo": "torch.distributed, Gloo"}
RELEASED = {name: f"{ours}, waits as released" for name, ours in OURS.items()}
NAMES = {"horovod": OURS, "peer": PEERS, "released": RELEASED}
#: What the tables of sizes, and the goals, are of.
ALLREDUCE = {"operation": "allreduce", "dtype": "float32", "in_place": True}
#: Parts of the program by method, for as many ranks as there are cores, and for more.
_ALL = ("allreduce", "collectives", "many", "training")
_PARTS = {"horovod": _ALL, "peer": _ALL, "released": ("allreduce", "training")}
_PARTS_OF_MORE = {"horovod": ("allreduce",), "peer": ("allreduce",)}
#: How often the methods take turns: the speed of a machine changes within minutes.
ROUNDS = 3
#: The same for allreduces on free cores, which the goals are about: two processes of one library
#: differ by up to a fifth.
ROUNDS_OF_ALLREDUCE = 9
#: Seconds that one launch may take.
_TIMEOUT = 1200.0


def run(subject: Environment, options: Options, ranks: Tuple[int, ...] = RANKS) -> Collectives:
    """Time collectives of an environment on each number of ``ranks``; build it first if needed.

    Raises:
        StageFailed: the build or a launch failed.
    """
    load = os.getloadavg()[0]
    found = pipeline.run(subject, options, last="build").built
    variables = found.run_environment()
    target = Target(pathlib.Path(shutil.which("python", path=variables["PATH"])), variables)
    current = Run(subject.name, "bench", options.verbose)
    frameworks = {name: version for name, version in found.frameworks.items() if version}
    part = Collectives("collectives", [])
    part.versions = {"Horovod": found.version, **frameworks, found.mpi.name: found.mpi.version}
    part.host.update(load=round(load, 2), pinning={})
    process.adopt_orphans()
    with current.stage("smoke"):
        if "pytorch" not in found.frameworks:
            raise HvdError(
                f"{subject.name} has no PyTorch, which the benchmark needs",
                "use an environment that has it: ./hvd bench local-hvd",
            )
        cores = len(os.sched_getaffinity(0))
        for count in ranks:
            chosen, rounds = _PARTS, ROUNDS_OF_ALLREDUCE
            if count > cores:
                chosen, rounds = _PARTS_OF_MORE, ROUNDS
            for launcher in _launchers(found.controllers):
                outs: Dict[str, List[pathlib.Path]] = {name: [] for name in chosen}
                for number in range(rounds):
                    for method, parts in chosen.items():
                        if number >= ROUNDS:
                            parts = ("allreduce",)
                        name = f"{launcher.controller}-{count}-{method}-{number}"
                        label = NAMES[method][launcher.controller]
                        with current.step(f"{label}, {count} ranks, {number + 1}") as task:
                            out = current.logs / "collectives" / name
                            launch(launcher, target, out, count, task.log, method, parts)
                            outs[method].append(out)
                for method, directories in outs.items():
                    part.rows += rows(NAMES[method][launcher.controller], directories, count)
                part.host["pinning"].setdefault(launcher.name, cores_per_rank(outs["horovod"][0]))
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
    method: str,
    parts: Iterable[str],
    seconds: float = 0.15,
    timeout: float = _TIMEOUT,
) -> None:
    """Run parts of the program on ``ranks`` ranks, which leave their records in ``out``.

    Args:
        method: of ``NAMES``.
        seconds: how long each size is called.
        timeout: limit of the launch, in seconds.

    Raises:
        HvdError: it failed, had a wrong result or timed out.
    """
    stamp.clear(out)
    out.mkdir(parents=True)
    words = launcher.command(find_program(target, launcher.program), ranks)
    words += [str(target.python), str(PROGRAM), "--controller", launcher.controller]
    words += ["--method", "peer" if method == "peer" else "horovod"]
    words += ["--device", launcher.device]
    words += ["--out", str(out), "--seconds", str(seconds), "--parts", *parts]
    variables = environment(launcher, target, timeout)
    if method == "released":
        variables["HOROVOD_WAKE_ON_WAIT"] = "0"
    process.run(words, log=log, env=variables, timeout=timeout)


def cores_per_rank(out: pathlib.Path) -> int:
    """Return how many cores the launcher let each rank use, by what the ranks recorded."""
    return min(json.loads(path.read_text())["cores"] for path in out.glob("rank-*.json"))


def rows(name: str, outs: Sequence[pathlib.Path], ranks: int) -> List[Collective]:
    """Return what the ranks timed in all rounds, a call taking as long as on its slowest rank.

    Args:
        name: of the method, on the page.
        outs: a directory with the ranks' records for each round.
        ranks: number of ranks.

    Raises:
        HvdError: a rank left no record.
    """
    timed: Dict[Tuple[Tuple[str, Any], ...], List[float]] = {}
    for out in outs:
        for what, seconds in _slowest(out, ranks):
            timed.setdefault(tuple(what.items()), []).extend(seconds)
    found = []
    for key, seconds in timed.items():
        median = statistics.median(seconds)
        # of 19 cuts into 20 parts
        p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
        least, most = min(seconds), max(seconds)
        what = {**dict(key), "name": name, "ranks": ranks, "calls": len(seconds)}
        found.append(Collective(**what, minimum=least, median=median, p95=p95, maximum=most))
    return found


def _slowest(out: pathlib.Path, ranks: int) -> Iterator[Tuple[Dict[str, Any], List[float]]]:
    """Yield what was timed in one round, with the time of the slowest rank for each call."""
    records: List[List[Dict[str, Any]]] = []
    for rank in range(ranks):
        path = out / f"rank-{rank}.json"
        if not path.exists():
            raise HvdError(f"rank {rank} recorded nothing in {paths.shorten(out)}")
        records.append(json.loads(path.read_text())["calls"])
    for same in zip(*records):
        seconds = zip(*(each.pop("seconds") for each in same))
        yield same[0], list(map(max, seconds))
