"""Read what the ranks of a launch recorded (see ``program_record``)."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from typing import Any, Dict, List, Optional

_FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$')
_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)


@dataclasses.dataclass
class Operation:
    """An operation that a rank has started.

    Args:
        name: such as ``allreduce sum``.
        dtype: element type, where it has one.
        elements: number of elements that the rank contributed, where there are any.
        seconds: wall time; None while it has not ended.
        ok: whether its result was right; None while it has not ended.
        detail: what was wrong with the result.
    """

    name: str
    dtype: Optional[str] = None
    elements: Optional[int] = None
    seconds: Optional[float] = None
    ok: Optional[bool] = None
    detail: str = ""

    def __str__(self) -> str:
        words = [self.name, *([self.dtype] if self.dtype else [])]
        return " ".join(words) + (f" x {self.elements}" if self.elements is not None else "")


@dataclasses.dataclass
class Frame:
    """A place in a program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclasses.dataclass
class Rank:
    """One process of a launch, as far as it got.

    Args:
        rank: Horovod's rank; None if it ended before it knew.
        launcher_rank: the rank that the launcher gave it; None if it gave none.
        size: number of ranks in its world; None before ``init`` has ended.
        mpi_libraries: paths of the MPI libraries that importing Horovod has loaded.
        operations: those it has started, in order.
        done: it ended its last operation.
        error: kind and text of the exception that ended its work.
        signal: the signal that ended it; None for an exit, or if that is not known, because
            its launcher killed it together with the parent that watched it.
        status: its exit status; None likewise.
        told_to_end: it had been sent SIGTERM before it ended.
        stack: where it was when it was told to terminate or crashed, innermost first.
        crash: what the Python interpreter said of a crash.
    """

    host: str
    pid: int
    rank: Optional[int] = None
    launcher_rank: Optional[int] = None
    size: Optional[int] = None
    mpi_libraries: List[str] = dataclasses.field(default_factory=list)
    operations: List[Operation] = dataclasses.field(default_factory=list)
    bandwidth: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    left_out: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    done: bool = False
    error: Optional[Dict[str, str]] = None
    signal: Optional[int] = None
    status: Optional[int] = None
    told_to_end: bool = False
    stack: List[Frame] = dataclasses.field(default_factory=list)
    crash: str = ""

    @property
    def number(self) -> Optional[int]:
        """Its rank, by Horovod or else by the launcher."""
        return self.launcher_rank if self.rank is None else self.rank

    @property
    def label(self) -> str:
        """``rank 1``, or the process where no rank is known."""
        if self.number is None:
            return f"process {self.pid} on {self.host} (rank not known yet)"
        return f"rank {self.number}"

    @property
    def wrong(self) -> List[Operation]:
        """Its operations with a wrong result."""
        return [operation for operation in self.operations if operation.ok is False]

    @property
    def current(self) -> Optional[Operation]:
        """The operation that it started and did not end."""
        last = self.operations[-1] if self.operations else None
        return last if last and last.ok is None else None

    @property
    def where(self) -> str:
        """``in <operation>``, or ``after <operation>`` if it was between two."""
        if self.current:
            return f"in {self.current}"
        return f"after {self.operations[-1]}" if self.operations else "before its first operation"

    @property
    def progress(self) -> int:
        """How far it got, comparable between ranks."""
        # Before ``init`` its operations are in another file, which it removes.
        return len(self.operations) + (1000 if self.rank is not None else 0)


def read(out: pathlib.Path) -> List[Rank]:
    """Every process that left a record in ``out``, in the order of ranks."""
    paths = [*out.glob("rank-*.jsonl"), *out.glob("launch-*.jsonl")]
    ranks = [rank for rank in map(_read, paths) if rank]
    inited = {(rank.host, rank.pid) for rank in ranks if rank.rank is not None}
    # A process killed right after ``init`` may leave both files.
    ranks = [r for r in ranks if r.rank is not None or (r.host, r.pid) not in inited]
    return sorted(ranks, key=lambda r: (r.number is None, r.number or 0, r.pid))


def _read(path: pathlib.Path) -> Optional[Rank]:
    events = []
    for line in path.read_text().splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:  # the line that it died in
            break
    if not events:
        return None
    first = events[0]
    rank = Rank(
        first["host"],
        first["pid"],
        first.get("rank"),
        first.get("launcher_rank"),
        first.get("size"),
        first.get("mpi_libraries", []),
    )
    for event in events[1:]:
        _apply(rank, event)
    _read_ending(rank, path.parent)
    return rank


def _apply(rank: Rank, event: Dict[str, Any]) -> None:
    kind = event.pop("event")
    if kind == "start":
        rank.operations.append(Operation(event["operation"], event["dtype"], event["elements"]))
    elif kind == "end":
        last = rank.operations[-1]
        last.seconds, last.ok, last.detail = event["seconds"], event["ok"], event["detail"]
    elif kind == "error":
        rank.error = {"kind": event["kind"], "detail": event["detail"]}
    elif kind == "loaded":
        rank.mpi_libraries = event["mpi_libraries"]
    elif kind == "bandwidth":
        rank.bandwidth.append(event)
    elif kind == "left-out":
        rank.left_out.append(event)
    elif kind == "done":
        rank.done = True


def _read_ending(rank: Rank, out: pathlib.Path) -> None:
    ending = out / f"exit-{rank.host}-{rank.pid}.json"
    if ending.exists():
        for name, value in json.loads(ending.read_text()).items():
            setattr(rank, name, value)
    stack = out / f"stack-{rank.host}-{rank.pid}.txt"
    text = stack.read_text() if stack.exists() else ""
    crash = _FATAL.search(text)
    rank.crash = crash[1] if crash else ""
    matches = map(_FRAME.match, text.splitlines())
    rank.stack = [Frame(m["file"], int(m["line"]), m["function"]) for m in matches if m]
