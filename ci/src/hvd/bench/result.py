"""What a part of the benchmark measured, and the file it is kept in."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import time
from typing import Any, Dict, List, Optional

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
    """One thing that was timed.

    Args:
        name: what was timed, such as ``plain pip``; what it is compared with is another row of
            the same subject, ranks and bytes.
        seconds: wall time of each repetition, in seconds; empty where it failed.
        subject: what it was timed for, such as the name of an environment.
        ranks: how many there were; 0 where there are none.
        bytes: what each rank contributed; 0 where nothing.
        note: what it consists of, or why it failed.
    """

    name: str
    seconds: List[float]
    subject: str = ""
    ranks: int = 0
    bytes: int = 0
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclasses.dataclass
class Part:
    """Everything that one part measured in one run; the fields of ``result.schema.json``."""

    name: str
    rows: List[Row]
    versions: Dict[str, str] = dataclasses.field(default_factory=dict)
    host: Dict[str, Any] = dataclasses.field(default_factory=machine.describe)
    date: str = dataclasses.field(default_factory=lambda: time.strftime("%Y-%m-%d", time.gmtime()))

    def find(self, name: str, subject: str = "", ranks: int = 0, bytes: int = 0) -> Optional[Row]:
        """The row of that name, subject, ranks and bytes; None where it was not measured."""
        key = (name, subject, ranks, bytes)
        for row in self.rows:
            if (row.name, row.subject, row.ranks, row.bytes) == key and row.seconds:
                return row
        return None

    def ratio(self, name: str, to: str, **where: Any) -> Optional[float]:
        """Median of ``name`` over that of ``to``; None where one of them was not measured."""
        ours, theirs = self.find(name, **where), self.find(to, **where)
        return ours.median / theirs.median if ours and theirs else None


def file(name: str) -> pathlib.Path:
    """Where the part ``name`` is kept."""
    return DIRECTORY / f"{name}.json"


def save(part: Part) -> pathlib.Path:
    """Keep ``part``, whole or not at all.

    Raises:
        HvdError: it cannot be written, or is not as it should be.
    """
    path = file(part.name)
    data = {"format": FORMAT, **dataclasses.asdict(part)}
    for row in data["rows"]:
        # more digits than that are noise
        row["seconds"] = [float(f"{seconds:.4g}") for seconds in row["seconds"]]
    schema.save_record(path, data, SCHEMA)
    return path


def load(name: str) -> Optional[Part]:
    """The part ``name``; None where it was never measured.

    Raises:
        HvdError: its file is damaged, or not as it should be; names the key.
    """
    path = file(name)
    if not path.exists():
        return None
    data = schema.load_record(path, SCHEMA)
    data.pop("format")
    return Part(**{**data, "rows": [Row(**row) for row in data["rows"]]})


def load_all() -> List[Part]:
    """The parts that were measured, in the order of the page."""
    return [part for part in map(load, PARTS) if part]
