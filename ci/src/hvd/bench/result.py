"""The results of the benchmark and their files."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import time
from typing import Any, Callable, Dict, List, Optional

import cattrs

from hvd.core import schema
from hvd.core.paths import ROOT
from hvd.host import machine

#: Raised whenever a required field is added, or a field is removed or changes its meaning.
FORMAT = 2
DIRECTORY = ROOT / "docs" / "performance"
SCHEMA = pathlib.Path(__file__).with_name("result.schema.json")
#: In the order of the page.
PARTS = ("builds", "solves", "collectives")


@dataclasses.dataclass
class Row:
    """The times of one thing.

    Args:
        name: what was timed; its reference is another row of the same subject.
        seconds: wall time of each repetition, in seconds; empty if it failed.
        subject: for example the name of an environment.
        note: what it consists of, or why it failed.
        installed: size of what it installed, in bytes; None if it installs nothing.
    """

    name: str
    seconds: List[float]
    subject: str = ""
    note: str = ""
    installed: Optional[int] = None

    @property
    def median(self) -> Optional[float]:
        """The median of the repetitions; None if it failed."""
        return statistics.median(self.seconds) if self.seconds else None


@dataclasses.dataclass
class Collective:
    """The wall times of a collective, in seconds; a call takes as long as on its slowest rank.

    Args:
        name: whose it is, such as ``mpi4py``.
        operation: such as ``allreduce``.
        in_place: the result is where the input was.
        bytes: its size, as nccl-tests has it.
        calls: how many were timed; the numbers below are of these.
    """

    name: str
    operation: str
    dtype: str
    in_place: bool
    ranks: int
    bytes: int
    calls: int
    minimum: float
    median: float
    p95: float
    maximum: float

    @property
    def bandwidth(self) -> float:
        """Algorithm bandwidth in bytes/s: the size over the median."""
        return self.bytes / self.median

    @property
    def bus_bandwidth(self) -> Optional[float]:
        """Bytes/s that each rank has to send at least; None for what is no single operation.

        https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
        """
        part = (self.ranks - 1) / self.ranks
        # how much of its size a rank has to send in the best algorithm
        sent = {"allreduce": 2 * part, "broadcast": 1.0}
        sent.update(dict.fromkeys(("allgather", "alltoall", "reducescatter"), part))
        return self.bandwidth * sent[self.operation] if self.operation in sent else None


@dataclasses.dataclass
class Benchmark:
    """Everything that one part measured in one run; the fields of ``result.schema.json``."""

    name: str
    rows: List[Row]
    versions: Dict[str, str] = dataclasses.field(default_factory=dict)
    host: Dict[str, Any] = dataclasses.field(default_factory=machine.describe)
    date: str = dataclasses.field(default_factory=lambda: time.strftime("%Y-%m-%d", time.gmtime()))

    def find(self, name: str, **where: Any) -> Any:
        """Return the row of that name whose fields have the values of ``where``, or None."""
        wanted = {"name": name, **where}
        rows = (r for r in self.rows if all(getattr(r, key) == wanted[key] for key in wanted))
        return next(rows, None)

    def ratio(self, name: str, to: str, of: str = "median", **where: Any) -> Optional[float]:
        """Return the field ``of`` of ``name`` over that of ``to``; None if one has none."""
        ours, theirs = (getattr(self.find(each, **where), of, None) for each in (name, to))
        return ours / theirs if ours and theirs else None


@dataclasses.dataclass
class Collectives(Benchmark):
    """The part whose rows are of collectives."""

    rows: List[Collective]


def timed(work: Callable[..., object], *arguments: Any, **options: Any) -> float:
    """Call ``work`` with ``arguments`` and ``options``; return its wall time in seconds."""
    begin = time.monotonic()
    work(*arguments, **options)
    return time.monotonic() - begin


def file(name: str) -> pathlib.Path:
    """Return the file that keeps the part ``name``."""
    return DIRECTORY / f"{name}.json"


def save(part: Benchmark) -> pathlib.Path:
    """Write ``part`` to its file, and return the file.

    Raises:
        HvdError: it cannot be written, or does not match the schema.
    """
    data = {"format": FORMAT, **dataclasses.asdict(part)}
    data["rows"] = [{key: _rounded(value) for key, value in row.items()} for row in data["rows"]]
    schema.save_record(file(part.name), data, SCHEMA)
    return file(part.name)


def _rounded(value: Any) -> Any:
    """More digits of a time are noise."""
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def load_all() -> List[Benchmark]:
    """Read the parts that were measured, in the order of the page.

    Raises:
        HvdError: a file does not match the schema; names the key.
    """
    files = [file(name) for name in PARTS]
    records = [schema.load_record(path, SCHEMA) for path in files if path.exists()]
    kinds = {"collectives": Collectives}
    return [cattrs.structure(each, kinds.get(each["name"], Benchmark)) for each in records]
