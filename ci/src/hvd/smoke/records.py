"""Read the records of the processes of a launch; `program_record` has their format."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import re
from typing import Any, Dict, List, NamedTuple, Optional

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)


@dataclasses.dataclass
class Operation:
    """An operation that a rank has started.

    Args:
        dtype: element type, if it has one.
        elements: number of elements that the rank contributed, if there are any.
        seconds, ok: wall time, and if its result was right; None while it has not ended.
        detail: what was wrong with the result.
    """

    operation: str
    dtype: Optional[str] = None
    elements: Optional[int] = None
    seconds: Optional[float] = None
    ok: Optional[bool] = None
    detail: str = ""

    def __str__(self) -> str:
        size = "" if self.elements is None else f"x {self.elements}"
        return " ".join(filter(None, (self.operation, self.dtype, size)))


class Frame(NamedTuple):
    """A place in a program."""

    file: str
    line: str
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclasses.dataclass
class Rank:
    """One process of a launch, as far as it got.

    Args:
        rank: Horovod's rank; None if it ended before ``init`` did.
        launcher_rank: the rank that the launcher gave it; None if it gave none.
        size: number of ranks in its world; None before ``init`` has ended.
        mpi_libraries: paths of the MPI libraries that importing Horovod has loaded.
        operations: those it has started, in order; after ``init``, those since then.
        started: number of all operations that it has started.
        error: ``kind`` and ``detail`` of the exception that ended its work.
        signal, status: how it ended; both None if its launcher killed its parent as well.
        told_to_end: it had been sent SIGTERM before it ended.
        stack: where it was when it was told to terminate or crashed, innermost first.
        crash: the Python interpreter's words for a crash.
    """

    host: str = ""
    pid: int = 0
    rank: Optional[int] = None
    launcher_rank: Optional[int] = None
    size: Optional[int] = None
    mpi_libraries: List[str] = dataclasses.field(default_factory=list)
    operations: List[Operation] = dataclasses.field(default_factory=list)
    started: int = 0
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
        """``rank 1``, or the process if no rank is known."""
        if self.number is None:
            return f"process {self.pid} on {self.host} (rank not known yet)"
        return f"rank {self.number}"

    @property
    def wrong(self) -> List[Operation]:
        """Its operations with a wrong result."""
        return [operation for operation in self.operations if operation.ok is False]

    @property
    def where(self) -> str:
        """``in <operation>``, or ``after <operation>`` if it was between two."""
        if not self.operations:
            return "before its first operation"
        last = self.operations[-1]
        return f"{'in' if last.ok is None else 'after'} {last}"


def read(out: pathlib.Path) -> List[Rank]:
    """Return every process that left a record in ``out``, in the order of ranks."""
    ranks = [_read(path.read_text(errors="replace")) for path in out.glob("process-*.txt")]
    return sorted(ranks, key=lambda r: (r.number is None, r.number or 0, r.pid))


def _read(text: str) -> Rank:
    rank = Rank(stack=[Frame(*match) for match in _FRAME.findall(text)])
    rank.crash = "".join(_FATAL.findall(text)[:1])
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
