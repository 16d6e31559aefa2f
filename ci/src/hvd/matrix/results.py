"""The results of the cells: ``docs/matrix.jsonl``, a line for each cell of ``ci/matrix.yaml``."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Dict, List

from hvd.core import schema
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.paths import ROOT, shorten
from hvd.matrix.cells import Cell, Matrix

FILE = ROOT / "docs" / "matrix.jsonl"


@dataclasses.dataclass
class Result:
    """The result of a cell, ``passed`` or ``failed``.

    ``inputs`` is what `Matrix.inputs` gave, and empty if unknown; ``versions`` are those that were
    really used; ``checks`` of the smoke test passed or not; ``upstream`` has numbers of Horovod's
    own tests by file and launcher; ``stage`` and ``reason``, the first error, are of a failure.
    """

    cell: str
    result: str
    date: str
    spec: str = ""
    inputs: Dict[str, str] = dataclasses.field(default_factory=dict)
    stage: str = ""
    reason: str = ""
    versions: Dict[str, str] = dataclasses.field(default_factory=dict)
    checks: Dict[str, bool] = dataclasses.field(default_factory=dict)
    upstream: Dict[str, Dict[str, int]] = dataclasses.field(default_factory=dict)
    seconds: int = 0
    host: str = ""

    def stale(self, matrix: Matrix, cell: Cell) -> List[str]:
        """Return what changed since the cell was tried, such as ``patches``."""
        if not self.inputs:
            return ["unknown"]
        now = matrix.inputs(cell, "+cuda" in self.spec, bool(self.upstream))
        return [name for name in now if now[name] != self.inputs.get(name)]


def load(file: pathlib.Path = FILE) -> Dict[str, Result]:
    """Return the results by the name of their cell."""
    found: Dict[str, Result] = {}
    for number, line in enumerate(file.read_text().splitlines() if file.exists() else [], 1):
        remedy = f"restore line {number} from git"
        try:
            result = schema.structure(Result, json.loads(line), file, remedy)
        except ValueError as error:
            raise HvdError(f"{shorten(file)}: line {number}: {error}", remedy) from error
        found[result.cell] = result
    return found


def save(result: Result, matrix: Matrix, file: pathlib.Path = FILE) -> None:
    """Add or replace one result; those of cells that the matrix no longer has are dropped."""
    results = {**load(file), result.cell: result}
    lines = []
    for cell in matrix.cells:
        if cell.id in results:
            fields = dataclasses.asdict(results[cell.id])
            kept = {name: value for name, value in fields.items() if value}
            lines.append(f"{json.dumps(kept, ensure_ascii=False)}\n")
    write_atomically(file, "".join(lines).encode())
