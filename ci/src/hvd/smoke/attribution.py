"""Say which rank made a launch fail, in which operation, and how.

When one rank dies or hangs, the others wait for it, in the same operation or in a later one.
The culprits come first; those that only waited follow and are called so.
"""

from __future__ import annotations

import re
import signal
from typing import List, Sequence, Set

from hvd.smoke.launch import PROGRAM, Launch
from hvd.smoke.records import Rank

#: Horovod's own Python code; a rank that is in it has handed its data over and waits.
_HOROVOD = re.compile(r"/horovod/(common|torch|tensorflow|mxnet)/")
#: The modules that the ranks run.
_OURS = str(PROGRAM.with_name("program"))
#: The line of Horovod's stall inspector for one missing rank (horovod/common/
#: stall_inspector.cc), behind the prefix that mpirun or horovodrun puts before each line.
_MISSING = re.compile(r"^(?:\[[\d,]+\](?:<\w+>:| ))?(\d+)!?: \[")
#: Raised in a rank when another one has left; TensorFlow has a kind of its own, with this text.
_CONSEQUENCE = "HorovodInternalError"
_SHUT_DOWN = "Horovod has been shut down"
#: Where TensorFlow runs a graph, in which an operation of Horovod may wait, and where MXNet waits
#: for its engine.
_GRAPH = re.compile(r"/(tensorflow/python/eager/execute|mxnet/ndarray/ndarray)\.py$")


def failures(launch: Launch, ranks: Sequence[Rank]) -> List[str]:
    """What went wrong in a launch, the cause first; empty if nothing did.

    Args:
        launch: the launch.
        ranks: what its processes recorded.
    """
    worlds = _separate_worlds(launch, ranks)
    if worlds:
        return worlds
    died = [rank for rank in ranks if _died(rank)]
    raised = [r for r in ranks if r.error and not _consequence(r)]
    hung = _hung(launch, ranks) if launch.timed_out and not died and not raised else []
    culprits = [*died, *raised, *hung]
    others = [r for r in ranks if not r.done and r not in culprits]
    found = [
        *map(_death, died),
        *map(_exception, raised),
        *(_hang(launch, rank) for rank in hung),
        *([_provenance(launch, ranks)] if any(r.rank is None for r in culprits) else []),
        *(text for rank in ranks for text in _wrong_results(rank)),
        *_without_record(launch, ranks),
        *((_waiting if culprits else _casualty)(rank) for rank in others),
    ]
    return found or _launcher(launch)


def _separate_worlds(launch: Launch, ranks: Sequence[Rank]) -> List[str]:
    sizes = sorted({rank.size for rank in ranks if rank.size is not None})
    if sizes in ([], [launch.ranks]):
        return []
    found = " and ".join(map(str, sizes))
    return [
        f"expected one world of {launch.ranks} ranks, got separate worlds of size {found}: "
        + _provenance(launch, ranks)
    ]


def _provenance(launch: Launch, ranks: Sequence[Rank]) -> str:
    """Whose ``mpirun`` and whose library: what to look at when ranks do not find each other."""
    if not launch.mpirun:
        return f"the launcher was {launch.executable}"
    libraries = sorted({path for rank in ranks for path in rank.mpi_libraries})
    linked = ", ".join(libraries) or "an MPI library that is not known"
    return f"the mpirun was {launch.mpirun}, and Horovod links {linked}; they must be of one MPI"


def _died(rank: Rank) -> bool:
    """It ended before its time, and nobody told it to."""
    if rank.error or rank.told_to_end or rank.signal == signal.SIGTERM:
        return False
    if rank.signal is not None:
        return True
    if rank.status is None:  # killed by its launcher
        return False
    return not rank.done or (rank.status != 0 and not rank.wrong)


def _consequence(rank: Rank) -> bool:
    """What it raised may be because another rank has left."""
    assert rank.error
    return rank.error["kind"] == _CONSEQUENCE or _SHUT_DOWN in rank.error["detail"]


def _hung(launch: Launch, ranks: Sequence[Rank]) -> List[Rank]:
    """The ranks for which the others wait; all that are not done where that cannot be told."""
    stuck = [rank for rank in ranks if not rank.done]
    behind = [r for r in stuck if r.progress == min(each.progress for each in stuck)]
    if len(behind) < 2:
        return behind
    elsewhere = [rank for rank in behind if rank.stack and not _waits(rank)]
    if 0 < len(elsewhere) < len(behind):
        return elsewhere
    missing = _missing_ranks(launch)
    return [rank for rank in behind if rank.rank in missing] or behind


def _waits(rank: Rank) -> bool:
    """It is in Horovod, or in one of the calls of MPI that the program makes itself."""
    place = rank.stack[0]
    if place.file == "<string>":  # TensorFlow makes its operations' functions from text
        return place.function.startswith("horovod_")
    if _HOROVOD.search(place.file) or _GRAPH.search(place.file):
        return True
    return place.file.startswith(_OURS)


def _missing_ranks(launch: Launch) -> Set[int]:
    """The ranks that Horovod's stall inspector last complained of in the log."""
    text = launch.log.read_text(errors="replace") if launch.log.exists() else ""
    _, found, tail = text.rpartition("Missing ranks:\n")
    missing: Set[int] = set()
    for line in tail.splitlines() if found else []:
        match = _MISSING.match(line)
        if not match:
            break
        missing.add(int(match[1]))
    return missing


def _death(rank: Rank) -> str:
    if rank.signal is None:
        return f"{rank.label} ended with exit status {rank.status} {rank.where}"
    crash = f": {rank.crash}" if rank.crash else ""
    place = f", at {rank.stack[0]}" if rank.crash and rank.stack else ""
    return f"{rank.label} died (signal {rank.signal}{crash}) {rank.where}{place}"


def _exception(rank: Rank) -> str:
    assert rank.error
    return f"{rank.label} raised {rank.error['kind']} {rank.where}: {rank.error['detail']}"


def _hang(launch: Launch, rank: Rank) -> str:
    place = f", at {rank.stack[0]}" if rank.stack else ""
    return f"{rank.label} hung {rank.where}, killed after {launch.seconds:.0f} s{place}"


def _wrong_results(rank: Rank) -> List[str]:
    return [f"{rank.label}: wrong result in {each}: {each.detail}" for each in rank.wrong]


def _without_record(launch: Launch, ranks: Sequence[Rank]) -> List[str]:
    if len(ranks) >= launch.ranks:
        return []
    if not ranks:
        ending = "was killed" if launch.timed_out else f"exited with status {launch.status}"
        return [
            f"{launch.launcher.name} {ending} after {launch.seconds:.0f} s,"
            " and no rank had left a record"
        ]
    if any(rank.number is None for rank in ranks):
        return [f"only {len(ranks)} of {launch.ranks} processes left a record"]
    absent = sorted(set(range(launch.ranks)) - {rank.number for rank in ranks})
    return [
        f"rank {number} left no record: it was not started, or ended before it could write"
        for number in absent
    ]


def _waiting(rank: Rank) -> str:
    consequence = f" and failed with {rank.error['kind']}" if rank.error else ""
    return f"{rank.label} was waiting {rank.where}{consequence}"


def _casualty(rank: Rank) -> str:
    """Of a rank that did not finish, when there is no other that explains it."""
    return _exception(rank) if rank.error else f"{rank.label} was terminated {rank.where}"


def _launcher(launch: Launch) -> List[str]:
    """What the launcher itself did wrong, when all ranks are fine."""
    name = launch.launcher.name
    if launch.timed_out:
        return [f"{name} did not end although every rank did; killed after {launch.seconds:.0f} s"]
    if launch.status != 0:
        return [f"{name} exited with status {launch.status} although no rank failed"]
    return []
