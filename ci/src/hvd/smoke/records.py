"""The records that the ranks of a launch leave, and which of the ranks made it fail.

`program` describes the format.  When one rank dies or hangs, the others wait for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import re
import signal
from typing import Any, Dict, List, Optional, Sequence

from hvd.smoke.launch import Launch

_FRAME = re.compile(r'^ +File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
#: A file, and behind a colon the function, in which a rank has handed its data over and waits:
#: Horovod's Python code, where TensorFlow runs a graph and makes functions from text, where MXNet
#: waits for its engine, and the programs of the ranks.
_WAITING = re.compile(
    r"/horovod/(common|torch|tensorflow|mxnet)/|^<string>:horovod_"
    r"|/tensorflow/python/eager/execute\.py|/mxnet/ndarray/ndarray\.py|/hvd/smoke/program"
)


@dataclasses.dataclass
class Operation:
    """An operation that a rank has started."""

    operation: str
    dtype: Optional[str] = None
    elements: Optional[int] = None
    seconds: Optional[float] = None  #: wall time; None while it has not ended
    ok: Optional[bool] = None  #: if its result was right
    detail: str = ""  #: what was wrong with it

    def __str__(self) -> str:
        size = "" if self.elements is None else f"x {self.elements}"
        return " ".join(filter(None, (self.operation, self.dtype, size)))


@dataclasses.dataclass
class Rank:
    """One process of a launch, as far as it got."""

    host: str = ""
    pid: int = 0
    launcher_rank: Optional[int] = None  #: None if the launcher gave it none
    rank: Optional[int] = None  #: Horovod's; None before ``init`` has ended, as the next
    size: Optional[int] = None
    mpi_libraries: List[str] = dataclasses.field(default_factory=list)  #: paths of those loaded
    operations: List[Operation] = dataclasses.field(default_factory=list)  #: since ``init``
    started: int = 0  #: number of all operations that it has started
    bandwidth: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    left_out: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    done: bool = False
    error: Optional[Dict[str, str]] = None  #: ``kind`` and ``detail`` of its exception
    signal: Optional[int] = None  #: that ended it
    status: Optional[int] = None  #: its exit status; both None if the launcher killed its parent
    place: str = ""  #: where it was when it crashed, hung or was told to terminate
    waits: bool = False  #: for other ranks, by that place
    hung: bool = False  #: it had not ended after its time limit
    crash: str = ""  #: the Python interpreter's words for a crash

    @property
    def number(self) -> Optional[int]:
        """Its rank, by Horovod or else by the launcher."""
        return self.launcher_rank if self.rank is None else self.rank

    @property
    def label(self) -> str:
        """``rank 1 on HOST``, or the process if no rank is known."""
        known = self.number is not None
        return (
            f"rank {self.number} on {self.host}" if known else f"process {self.pid} on {self.host}"
        )

    @property
    def where(self) -> str:
        """``in <operation>``, or ``after <operation>`` if it was between two; and its place."""
        last = self.operations[-1] if self.operations else None
        text = f"{'in' if last.ok is None else 'after'} {last}" if last else "at its start"
        return f"{text}, at {self.place}" if self.place else text

    @property
    def fault(self) -> str:
        """How it ended before its time by itself; empty if it did not."""
        if self.error:
            # raised as well in a rank when another one has left; TensorFlow has a kind of its own
            follows = "HorovodInternalError" in self.error["kind"]
            if follows or "Horovod has been shut down" in self.error["detail"]:
                return ""
            return f"raised {self.error['kind']}: {' '.join(self.error['detail'].split())},"
        if self.signal and self.signal not in (signal.SIGTERM, signal.SIGALRM):
            return f"died of signal {self.signal} ({self.crash or signal.strsignal(self.signal)})"
        wrong = any(each.ok is False for each in self.operations)
        if self.status is not None and (not self.done or (self.status and not wrong)):
            return f"exited with status {self.status}"
        return ""


def read(out: pathlib.Path) -> List[Rank]:
    """Return every process that left a record in ``out``, in the order of ranks."""
    ranks = [_read(path.read_text(errors="replace")) for path in out.glob("process-*.txt")]
    return sorted(ranks, key=lambda r: (r.number is None, r.number or 0, r.pid))


def _read(text: str) -> Rank:
    rank = Rank(hung="Timeout (" in text, crash="".join(_FATAL.findall(text)[:1]))
    for stack in text.split("(most recent call first):"):
        found = _FRAME.search(stack)  # of several threads, the main one is last
        if found:
            rank.place = f"{found[1]}:{found[2]} in {found[3]}"
            rank.waits = bool(_WAITING.search(f"{found[1]}:{found[3]}"))
    for line in text.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(json.JSONDecodeError):  # the line that it died in
                _apply(rank, **json.loads(line))
    return rank


def _apply(rank: Rank, /, event: str, **fields: Any) -> None:
    if event == "start":
        rank.operations.append(Operation(**fields))
        rank.started += 1
    elif event == "end":
        rank.operations[-1] = Operation(**fields)
    elif event in ("bandwidth", "left_out"):
        getattr(rank, event).append(fields)
    else:
        if event == "init":
            rank.operations.clear()
        vars(rank).update(fields)


def failures(launch: Launch, ranks: Sequence[Rank]) -> List[str]:
    """Return what went wrong in a launch, the cause first; empty if nothing did."""
    name, after = launch.launcher.name, f"after {launch.seconds:.0f} s"
    ended = f"was killed {after}" if launch.timed_out else f"exited with status {launch.status}"
    worlds = sorted({rank.size for rank in ranks} - {None, launch.ranks})
    if worlds:
        sizes = " and ".join(map(str, worlds))
        expected = (
            f"expected one world of {launch.ranks} ranks, got separate worlds of size {sizes}"
        )
        return [f"{expected}: {_provenance(launch, ranks)}"]
    culprits = [rank for rank in ranks if rank.fault]
    texts = [f"{rank.label} {rank.fault} {rank.where}" for rank in culprits]
    if not culprits and (launch.timed_out or any(rank.hung for rank in ranks)):
        culprits = _hung(ranks)
        texts = [f"{rank.label} hung {rank.where}" for rank in culprits]
    if any(rank.rank is None for rank in culprits):
        texts.append(_provenance(launch, ranks))
    for rank in ranks:
        wrong = [f"{each}: {each.detail}" for each in rank.operations if each.ok is False]
        more = f", and in {len(wrong) - 1} more" if len(wrong) > 1 else ""
        texts += [f"{rank.label}: wrong result in {each}{more}" for each in wrong[:1]]
    if len(ranks) < launch.ranks:
        texts.append(
            f"{name} {ended}, and only {len(ranks)} of {launch.ranks} ranks left a record"
        )
    for rank in ranks:
        if not rank.done and rank not in culprits:
            # a rank that hung may learn of it, when another is ended, before its own end
            failed = rank.error and not rank.hung
            doing = f"failed with {rank.error['kind']}" if failed else "was waiting"
            texts.append(f"{rank.label} {doing} {rank.where}")
    if not texts and launch.status != 0:
        texts = [f"{name} {ended} although no rank failed"]
    return texts


def _hung(ranks: Sequence[Rank]) -> List[Rank]:
    """Return the ranks for which the others wait; if that is not known, all that are not done."""
    stuck = [rank for rank in ranks if not rank.done]
    behind = [rank for rank in stuck if rank.started == min(each.started for each in stuck)]
    return [rank for rank in behind if not rank.waits] or behind


def _provenance(launch: Launch, ranks: Sequence[Rank]) -> str:
    """Name the ``mpirun`` and the library, one of which is wrong in separate worlds."""
    if not launch.mpirun:
        return f"the launcher was {launch.executable}"
    libraries = sorted({path for rank in ranks for path in rank.mpi_libraries})
    linked = ", ".join(libraries) or "an MPI library that is not known"
    return f"the mpirun was {launch.mpirun}, and Horovod links {linked}; they must be of one MPI"
