"""Say which rank made a launch fail, in which operation, and how.

When one rank dies or hangs, the others wait for it.  The culprits come first.
"""

from __future__ import annotations

import itertools
import re
import signal
from typing import List, Sequence, Set

from hvd.smoke.launch import PROGRAM, Launch
from hvd.smoke.records import Rank

#: Files in which a rank has handed its data over and waits: Horovod's own Python code, where
#: TensorFlow runs a graph and MXNet waits for its engine, and the program of the ranks.
_WAITING = re.compile(
    r"/horovod/(common|torch|tensorflow|mxnet)/"
    r"|/(tensorflow/python/eager/execute|mxnet/ndarray/ndarray)\.py$"
    rf"|^{re.escape(str(PROGRAM.with_name('program')))}"
)
#: The line of Horovod's stall inspector for one missing rank (horovod/common/
#: stall_inspector.cc), behind the prefix that mpirun or horovodrun puts before each line.
_MISSING = re.compile(r"^(?:\[[\d,]+\](?:<\w+>:| ))?(\d+)!?: \[")
#: Raised in a rank when another one has left; TensorFlow has a kind of its own, with this text.
_CONSEQUENCE = "HorovodInternalError"
_SHUT_DOWN = "Horovod has been shut down"


def failures(launch: Launch, ranks: Sequence[Rank]) -> List[str]:
    """Return what went wrong in a launch, the cause first; empty if nothing did."""
    sizes = {rank.size for rank in ranks} - {None}
    if sizes - {launch.ranks}:
        found = " and ".join(map(str, sorted(sizes)))
        worlds = f"expected one world of {launch.ranks} ranks, got separate worlds of size {found}"
        return [f"{worlds}: {_provenance(launch, ranks)}"]
    ended = [rank for rank in ranks if _died(rank)]
    ended += [rank for rank in ranks if rank.error and not _follows(rank.error)]
    hung = _hung(launch, ranks) if launch.timed_out and not ended else []
    after = f"after {launch.seconds:.0f} s"
    texts = [_ending(rank) for rank in ended]
    texts += [f"{rank.label} hung {rank.where}, killed {after}{_place(rank)}" for rank in hung]
    culprits = ended + hung
    if any(rank.rank is None for rank in culprits):
        texts.append(_provenance(launch, ranks))
    for rank in ranks:
        texts += [f"{rank.label}: wrong result in {each}: {each.detail}" for each in rank.wrong]
    texts += _without_record(launch, ranks)
    for rank in ranks:
        if rank.done or rank in culprits:
            continue
        if culprits:
            error = f" and failed with {rank.error['kind']}" if rank.error else ""
            texts.append(f"{rank.label} was waiting {rank.where}{error}")
        else:
            terminated = f"{rank.label} was terminated {rank.where}"
            texts.append(_ending(rank) if rank.error else terminated)
    if not texts and launch.timed_out:
        texts = [f"{launch.launcher.name} did not end although every rank did; killed {after}"]
    elif not texts and launch.status != 0:
        status = f"exited with status {launch.status}"
        texts = [f"{launch.launcher.name} {status} although no rank failed"]
    return texts


def _provenance(launch: Launch, ranks: Sequence[Rank]) -> str:
    """Name the ``mpirun`` and the library, one of which is wrong in separate worlds."""
    if not launch.mpirun:
        return f"the launcher was {launch.executable}"
    libraries = sorted({path for rank in ranks for path in rank.mpi_libraries})
    linked = ", ".join(libraries) or "an MPI library that is not known"
    return f"the mpirun was {launch.mpirun}, and Horovod links {linked}; they must be of one MPI"


def _died(rank: Rank) -> bool:
    """Say if it ended before its time, and nobody told it to."""
    if rank.error or rank.told_to_end or rank.signal == signal.SIGTERM:
        return False
    if rank.signal is not None:
        return True
    if rank.status is None:  # killed by its launcher
        return False
    return not rank.done or (rank.status != 0 and not rank.wrong)


def _follows(error: dict) -> bool:
    """Say if another rank may have caused an exception by leaving."""
    return error["kind"] == _CONSEQUENCE or _SHUT_DOWN in error["detail"]


def _hung(launch: Launch, ranks: Sequence[Rank]) -> List[Rank]:
    """Return the ranks for which the others wait; if that is not known, all that are not done."""
    stuck = [rank for rank in ranks if not rank.done]
    behind = [rank for rank in stuck if rank.started == min(each.started for each in stuck)]
    elsewhere = [rank for rank in behind if rank.stack and not _waits(rank)]
    if 0 < len(elsewhere) < len(behind):
        return elsewhere
    missing = _missing_ranks(launch)
    return [rank for rank in behind if rank.rank in missing] or behind


def _waits(rank: Rank) -> bool:
    """Say if it is in Horovod, or in one of the calls of MPI that the program makes itself."""
    place = rank.stack[0]
    if place.file == "<string>":  # TensorFlow makes its operations' functions from text
        return place.function.startswith("horovod_")
    return bool(_WAITING.search(place.file))


def _missing_ranks(launch: Launch) -> Set[int]:
    """Return the ranks that Horovod's stall inspector last complained of in the log."""
    text = launch.log.read_text(errors="replace") if launch.log.exists() else ""
    _, found, tail = text.rpartition("Missing ranks:\n")
    matches = map(_MISSING.match, tail.splitlines() if found else [])
    return {int(match[1]) for match in itertools.takewhile(bool, matches)}


def _place(rank: Rank) -> str:
    return f", at {rank.stack[0]}" if rank.stack else ""


def _ending(rank: Rank) -> str:
    """Say how a rank ended: by an exception, a signal or an exit status."""
    if rank.error:
        return f"{rank.label} raised {rank.error['kind']} {rank.where}: {rank.error['detail']}"
    if rank.signal is None:
        return f"{rank.label} ended with exit status {rank.status} {rank.where}"
    if not rank.crash:
        return f"{rank.label} died (signal {rank.signal}) {rank.where}"
    return f"{rank.label} died (signal {rank.signal}: {rank.crash}) {rank.where}{_place(rank)}"


def _without_record(launch: Launch, ranks: Sequence[Rank]) -> List[str]:
    if len(ranks) >= launch.ranks:
        return []
    if not ranks:
        ending = "was killed" if launch.timed_out else f"exited with status {launch.status}"
        after = f"after {launch.seconds:.0f} s, and no rank had left a record"
        return [f"{launch.launcher.name} {ending} {after}"]
    if any(rank.number is None for rank in ranks):
        return [f"only {len(ranks)} of {launch.ranks} processes left a record"]
    return [
        f"rank {number} left no record: it was not started, or ended before it could write"
        for number in sorted(set(range(launch.ranks)) - {rank.number for rank in ranks})
    ]
