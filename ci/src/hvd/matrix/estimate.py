"""How long cells will take, from how long earlier ones took."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Dict, Iterable, List, Sequence

from hvd.matrix.definition import Cell
from hvd.matrix.result import TRIED, Result
from hvd.report.text import duration, plural


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Seconds for a number of cells, and what that is taken from.

    Args:
        seconds: the sum over those cells that earlier results say something of.
        basis: number of cells by what their seconds are those of.
        unknown: number of cells of which nothing is known.
    """

    seconds: float
    basis: Dict[str, int]
    unknown: int

    def __str__(self) -> str:
        if not self.basis:
            return (
                f"how long {plural(self.unknown, 'cell')} will take is not known: no earlier one"
            )
        known = ", ".join(f"{count} {basis}" for basis, count in self.basis.items() if count)
        text = f"about {duration(self.seconds)} by how long earlier cells took: {known}"
        return f"{text}; of {self.unknown} nothing is known" if self.unknown else text


def estimate(cells: Sequence[Cell], results: Iterable[Result], cached: bool) -> Estimate:
    """How long ``cells`` will take.

    Args:
        cells: those to be tried.
        results: earlier ones.
        cached: whether there is a compiler cache; results with and without are not mixed.
    """
    like = [r for r in results if r.result in TRIED and bool(r.compiler_cache) == cached]
    basis = {"of the same cell": 0, "of the same framework": 0, "of any": 0}
    seconds, unknown = 0.0, 0
    for cell in cells:
        groups: List[List[Result]] = [
            [each for each in like if each.cell == cell],
            [each for each in like if each.cell.framework == cell.framework],
            like,
        ]
        for name, group in zip(basis, groups):
            if group:
                # with half of them slower, a failure that came early does not count much
                seconds += statistics.median(each.total for each in group)
                basis[name] += 1
                break
        else:
            unknown += 1
    return Estimate(seconds, basis if any(basis.values()) else {}, unknown)
