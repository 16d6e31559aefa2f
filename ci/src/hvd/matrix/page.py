"""``docs/support-matrix.md``, made from the results."""

from __future__ import annotations

import pathlib
from typing import Iterable, Iterator, List, Mapping, Sequence

from hvd.core import paths
from hvd.docs import pages
from hvd.matrix import results
from hvd.matrix.cells import Cell, Matrix
from hvd.matrix.results import Result
from hvd.model import specs
from hvd.report.text import plural, table

BEGIN = "<!-- made by ./hvd dev matrix -->"
PAGE = paths.ROOT / "docs" / "support-matrix.md"
#: The packages whose versions are shown of an axis' values.
_PACKAGES = {
    "framework": ("PyTorch", "TensorFlow", "keras", "mxnet", "pyspark", "ray"),
    "mpi": ("openmpi", "mpich", "intel-mpi"),
    "compiler": ("gcc", "llvm"),
}


def write(matrix: Matrix, check: bool = False) -> List[pathlib.Path]:
    """Write the page, or with ``check`` fail if it is out of date."""
    return pages.rewrite(PAGE, BEGIN, page(matrix, results.load()), check)


def page(matrix: Matrix, found: Mapping[str, Result]) -> str:
    """Return the generated part of the page."""
    newest = max((cell.horovod for cell in matrix.cells), key=specs.version_key)
    current = [cell for cell in matrix.cells if cell.horovod == newest]
    older = [cell for cell in matrix.cells if cell.horovod != newest]
    tried = [cell for cell in matrix.cells if cell.id in found]
    stale = {cell.id for cell in tried if found[cell.id].stale(matrix, cell)}

    def state(cells: Sequence[Cell]) -> str:
        outcomes = [found[cell.id].result if cell.id in found else "not tried" for cell in cells]
        counts = {name: outcomes.count(name) for name in ("passed", "failed", "not tried")}
        counts["stale"] = sum(cell.id in stale for cell in cells)
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count)

    def rows(axis: str, cells: Sequence[Cell], *others: str) -> Iterator[List[str]]:
        """Yield the value of ``axis``, versions, the values of other axes, and the results."""
        for value in dict.fromkeys(getattr(cell, axis) for cell in cells):
            group = [cell for cell in cells if getattr(cell, axis) == value]
            passed = [c for c in group if c.id in found and found[c.id].result == "passed"]
            used = {
                f"{name} {found[cell.id].versions[name].partition('+')[0]}"
                for cell in passed
                for name in _PACKAGES.get(axis, ())
                if name in found[cell.id].versions
            }
            spans = [_span(getattr(cell, other) for cell in passed) for other in others]
            pip, spack = (
                [c for c in group if (c.engine == "pip") == own] for own in (True, False)
            )
            yield [value, ", ".join(sorted(used)), *spans, state(pip), state(spack)]

    dates = sorted(found[cell.id].date for cell in tried)
    span = f"; tried {dates[0]} to {dates[-1]}" if dates else ""
    lines = [f"{plural(len(matrix.cells), 'cell')}: {state(matrix.cells)}{span}.", ""]
    header = ["Framework", "Versions", "Python", "MPI", "pip", "Spack"]
    made = rows("framework", current, "python", "mpi")
    lines += [f"### Horovod {newest} by framework", "", *table(header, made)]
    header = ["MPI", "Versions", "Frameworks", "pip", "Spack"]
    made = rows("mpi", current, "framework")
    lines += [f"### Horovod {newest} by MPI", "", *table(header, made)]
    header = ["Horovod", "Versions", "Frameworks", "Python", "pip", "Spack"]
    made = rows("horovod", older, "framework", "python")
    lines += ["### Older releases", "", *table(header, made)]
    others: List[List[str]] = []
    for axis in ("controllers", "operations", "cmake", "compiler", "target", "engine"):
        unusual = [c for c in matrix.cells if getattr(c, axis) != getattr(Cell, axis)]
        others += rows(axis, unusual, "framework")
    header = ["Value", "Versions", "Frameworks", "pip", "Spack"]
    lines += ["### Other controllers, operations, CMakes, compilers, processors, engines", ""]
    lines += table(header, others)
    failed = [cell for cell in tried if found[cell.id].result == "failed"]
    if failed:
        header = ["Cell", "Stage", "First error", "Cause"]
        made = ([c.id, found[c.id].stage, found[c.id].reason, c.fails] for c in failed)
        lines += ["### What failed", "", *table(header, made)]
    header = ["Cell", "File, launcher", "Passed", "Failed", "Skipped"]
    counts = [
        [cell.id, name, each["passed"], each["failed"], each["skipped"]]
        for cell in tried
        for name, each in sorted(found[cell.id].upstream.items())
    ]
    if counts:
        lines += ["### Horovod's own tests", "", *table(header, counts, header[2:])]
    return "\n".join(lines)


def _span(values: Iterable[str]) -> str:
    """Return the distinct values in order; of many, the first and the last, or their names."""
    ordered = sorted(set(values) - {"none"}, key=specs.version_key)
    if len(ordered) > 6:
        ordered = list(dict.fromkeys(value.partition("-")[0] for value in ordered))
    if len(ordered) > 2 and ordered[0][0].isdigit():
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(ordered)
