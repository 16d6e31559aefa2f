"""The result of a cell, and the file in ``docs/matrix`` that keeps it."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Container, Dict, List

import cattrs

from hvd.core import schema
from hvd.core.errors import HvdError
from hvd.core.paths import ROOT, shorten
from hvd.matrix.definition import Cell

#: Raised whenever a field is added, removed or changes its meaning.
FORMAT = 2
DIRECTORY = ROOT / "docs" / "matrix"
SCHEMA = pathlib.Path(__file__).with_name("result.schema.json")


@dataclasses.dataclass
class Result:
    """The result of one cell; ``result.schema.json`` describes the fields."""

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
    def tried(self) -> bool:
        """True if it took a build; the other results cost nothing to make again."""
        return self.result in ("passed", "failed")

    @property
    def total(self) -> float:
        """The seconds of all stages."""
        return sum(self.seconds.values())

    def efficiency(self, example: str) -> float:
        """Return the rate of two ranks over twice that of one; 0 if it was not measured."""
        rates = self.examples.get(example, {})
        one, two = rates.get("1", 0.0), rates.get("2", 0.0)
        return two / (2 * one) if one else 0.0


def file(cell: Cell, directory: pathlib.Path = DIRECTORY) -> pathlib.Path:
    """Return the file with the result of ``cell``."""
    return directory / f"{cell.id}.json"


def save(result: Result, directory: pathlib.Path = DIRECTORY) -> None:
    """Write ``result``, unless it took no build and the file has one that did.

    Raises:
        HvdError: the file cannot be written.
    """
    path = file(result.cell, directory)
    if result.tried or not path.exists() or not load(path).tried:
        schema.save_record(path, {"format": FORMAT, **dataclasses.asdict(result)}, SCHEMA)


def load(path: pathlib.Path) -> Result:
    """Read a result.

    Raises:
        HvdError: the file is damaged or does not follow the schema; names the key.
    """
    result = cattrs.structure(schema.load_record(path, SCHEMA), Result)
    if path.stem != result.cell.id:
        raise HvdError(
            f"{shorten(path)}: key 'cell' is that of {result.cell.id}", "rename or remove the file"
        )
    return result


def load_all(directory: pathlib.Path = DIRECTORY) -> List[Result]:
    """Read every result, in the order of the file names.

    Raises:
        HvdError: a file is damaged.
    """
    return [load(path) for path in sorted(directory.glob("*.json"))]


def forget(planned: Container[str], directory: pathlib.Path = DIRECTORY) -> None:
    """Remove results that took no build and whose cells are not among the names ``planned``."""
    for each in load_all(directory):
        if not each.tried and each.cell.id not in planned:
            file(each.cell, directory).unlink()
