"""What came of a cell, and the file it is kept in."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Container, Dict, List

from hvd.core import schema
from hvd.core.errors import HvdError
from hvd.core.paths import ROOT, shorten
from hvd.matrix.definition import Cell

#: Raised whenever a field is added, removed or changes its meaning.
FORMAT = 2
DIRECTORY = ROOT / "docs" / "matrix"
SCHEMA = pathlib.Path(__file__).with_name("result.schema.json")
#: Results that took a build; the others can be had again at no cost.
TRIED = ("passed", "failed")


@dataclasses.dataclass
class Result:
    """What came of one cell; the fields are those of ``result.schema.json``."""

    cell: Cell
    result: str
    reason: str = ""
    stage: str = ""
    cause: str = ""
    spec: str = ""
    versions: Dict[str, str] = dataclasses.field(default_factory=dict)
    distributions: Dict[str, str] = dataclasses.field(default_factory=dict)
    checks: Dict[str, bool] = dataclasses.field(default_factory=dict)
    upstream: Dict[str, Dict[str, int]] = dataclasses.field(default_factory=dict)
    examples: Dict[str, Dict[str, float]] = dataclasses.field(default_factory=dict)
    seconds: Dict[str, float] = dataclasses.field(default_factory=dict)
    compiler_cache: str = ""
    host: Dict[str, Any] = dataclasses.field(default_factory=dict)
    date: str = ""
    log: str = ""
    inputs: str = ""

    @property
    def total(self) -> float:
        """Seconds of all its stages."""
        return sum(self.seconds.values())

    def efficiency(self, example: str) -> float:
        """Two ranks' throughput over twice that of one; 0 where it was not measured."""
        rates = self.examples.get(example, {})
        one, two = rates.get("1", 0.0), rates.get("2", 0.0)
        return two / (2 * one) if one else 0.0


def file(cell: Cell, directory: pathlib.Path = DIRECTORY) -> pathlib.Path:
    """Where the result of ``cell`` is."""
    return directory / f"{cell.id}.json"


def save(result: Result, directory: pathlib.Path = DIRECTORY) -> bool:
    """Keep ``result``, whole or not at all.

    Returns:
        Whether it was; one that took no build does not take the place of one that did.

    Raises:
        HvdError: it cannot be written.
    """
    path = file(result.cell, directory)
    if result.result not in TRIED and path.exists() and load(path).result in TRIED:
        return False
    data = {"format": FORMAT, **dataclasses.asdict(result)}
    schema.save_record(path, data, SCHEMA)
    return True


def load(path: pathlib.Path) -> Result:
    """The result in ``path``.

    Raises:
        HvdError: it is damaged, or not as it should be; names the key.
    """
    data = schema.load_record(path, SCHEMA)
    data.pop("format")
    result = Result(**{**data, "cell": Cell(**data["cell"])})
    if path.stem != result.cell.id:
        raise HvdError(
            f"{shorten(path)}: key 'cell' is that of {result.cell.id}", "rename it, or remove it"
        )
    return result


def load_all(directory: pathlib.Path = DIRECTORY) -> List[Result]:
    """Every result, in the order of its files' names.

    Raises:
        HvdError: one of them is not as it should be.
    """
    return [load(path) for path in sorted(directory.glob("*.json"))]


def forget(planned: Container[str], directory: pathlib.Path = DIRECTORY) -> None:
    """Remove what was refused or skipped and is planned no more: nothing shows that it holds.

    Args:
        planned: the names of all cells of a plan.
        directory: where the results are.
    """
    for each in load_all(directory):
        if each.result not in TRIED and each.cell.id not in planned:
            file(each.cell, directory).unlink()
