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

#: Raised whenever a field is added, removed or changes its meaning.
FORMAT = 1
DIRECTORY = ROOT / "docs" / "performance"
SCHEMA = pathlib.Path(__file__).with_name("result.schema.json")
#: In the order of the page.
PARTS = ("builds", "solves", "allreduce")


@dataclasses.dataclass
class Row:
    """The times of one thing.

    Args:
        name: what was timed, such as ``plain pip``; its reference is another row of the same
            subject, ranks and bytes.
        seconds: wall time of each repetition, in seconds; empty if it failed.
        subject: for example the name of an environment.
        ranks: number of ranks; 0 if there are none.
        bytes: bytes that each rank contributed; 0 if none.
        note: what it consists of, or why it failed.
    """

    name: str
    seconds: List[float]
    subject: str = ""
    ranks: int = 0
    bytes: int = 0
    note: str = ""

    @property
    def median(self) -> Optional[float]:
        """The median of the repetitions; None if it failed."""
        return statistics.median(self.seconds) if self.seconds else None


@dataclasses.dataclass
class Benchmark:
    """Everything that one part measured in one run; the fields of ``result.schema.json``."""

    name: str
    rows: List[Row]
    versions: Dict[str, str] = dataclasses.field(default_factory=dict)
    host: Dict[str, Any] = dataclasses.field(default_factory=machine.describe)
    date: str = dataclasses.field(default_factory=lambda: time.strftime("%Y-%m-%d", time.gmtime()))

    def find(self, name: str, subject: str = "", ranks: int = 0, bytes: int = 0) -> Optional[Row]:
        """Return the row of that name, subject, ranks and bytes; None if there is none."""
        key = (name, subject, ranks, bytes)
        rows = (r for r in self.rows if (r.name, r.subject, r.ranks, r.bytes) == key)
        return next(rows, None)

    def ratio(self, name: str, to: str, **where: Any) -> Optional[float]:
        """Return the median of ``name`` over that of ``to``; None if one was not measured."""
        ours, theirs = self.find(name, **where), self.find(to, **where)
        if not (ours and ours.seconds and theirs and theirs.seconds):
            return None
        return ours.median / theirs.median


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
    for row in data["rows"]:
        # more digits are noise
        row["seconds"] = [float(f"{seconds:.4g}") for seconds in row["seconds"]]
    schema.save_record(file(part.name), data, SCHEMA)
    return file(part.name)


def load_all() -> List[Benchmark]:
    """Read the parts that were measured, in the order of the page.

    Raises:
        HvdError: a file does not match the schema; names the key.
    """
    files = [file(name) for name in PARTS]
    records = [schema.load_record(path, SCHEMA) for path in files if path.exists()]
    return [cattrs.structure(record, Benchmark) for record in records]
