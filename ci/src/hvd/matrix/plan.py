"""Which cells are tried here, which the recipe refuses, and which this machine cannot try."""

from __future__ import annotations

import dataclasses
import functools
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from hvd.core.errors import HvdError
from hvd.matrix import cover, wanted
from hvd.matrix.definition import AXES, Cell, Matrix
from hvd.matrix.here import Here


@dataclasses.dataclass(frozen=True)
class Planned:
    """A cell, and what is to be done with it.

    Args:
        cell: the combination.
        action: ``try``, ``refused`` or ``skipped``.
        reason: the recipe's words, or what this machine lacks.
    """

    cell: Cell
    action: str = "try"
    reason: str = ""


def plan(matrix: Matrix, here: Here, earlier: Sequence[Cell] = ()) -> List[Planned]:
    """Every cell: those that must be, those of each block, and the rest with a reason.

    Per block, every pair of values that can be together here is in a cell that is tried; a pair
    that the recipe refuses in every combination is in one that is refused; and what this machine
    lacks is in one that is skipped.

    Args:
        matrix: whose cells.
        here: the machine.
        earlier: cells that were tried before.  They come before others that would do, so that a
            new value, or a new bound of the recipe, adds cells and does not exchange them all.

    Raises:
        HvdError: a cell that must be is one that there is not.
    """
    chooser = _Chooser(matrix, here)
    found: Dict[Cell, Planned] = {}
    for number, part in enumerate(matrix.must):
        planned = chooser.must(number, part)
        found.setdefault(planned.cell, planned)
    for axes in matrix.blocks.values():
        tried = [dataclasses.asdict(each.cell) for each in found.values() if each.action == "try"]
        for planned in chooser.block(axes, tried, list(map(dataclasses.asdict, earlier))):
            found.setdefault(planned.cell, planned)
    return list(found.values())


class _Chooser:
    def __init__(self, matrix: Matrix, here: Here) -> None:
        self.matrix = matrix
        self.here = here
        self._refusal = functools.lru_cache(maxsize=None)(self._refused)

    def must(self, number: int, part: Mapping[str, str]) -> Planned:
        """The cell that ``part`` asks for: its other axes have the first values that go."""
        axes = {axis: (part[axis],) if axis in part else self.matrix.axes[axis] for axis in AXES}
        for possible, action in ((self._possible, "try"), (self._exists_unrefused, "skipped")):
            row = cover.first(axes, possible, part)
            if row:
                return Planned(Cell(**row), action, self.here.lacks(self.matrix, row))
        row = cover.first(axes, self._exists, part)
        if not row:
            raise HvdError(
                f"ci/matrix.yaml: key 'must:{number}': there is no such cell",
                "see the Pythons that its framework has wheels for",
            )
        return Planned(Cell(**row), "refused", self._message(row))

    def block(
        self,
        axes: Mapping[str, Sequence[str]],
        tried: Sequence[Dict[str, str]],
        earlier: Sequence[Dict[str, str]],
    ) -> List[Planned]:
        """The cells of a block beside those that are tried anyway, ``earlier`` ones first."""
        lacking = [
            (axis, value)
            for axis in axes
            for value in axes[axis]
            if self.here.lacks(self.matrix, {axis: value})
        ]
        there = {
            axis: tuple(value for value in values if (axis, value) not in lacking)
            for axis, values in axes.items()
        }
        again = cover.adding(there, self._possible, tried, earlier)
        rows, impossible = cover.covering(there, self._possible, [*tried, *again])
        found = [Planned(Cell(**row)) for row in (*again, *rows)]
        parts = [dict(pair) for pair in impossible] + [{axis: value} for axis, value in lacking]
        said: Set[Tuple[str, str]] = set()
        for part in parts:
            planned = self._untried(axes, part)
            # one for each thing that a release is refused for, and for each that is lacking
            if not planned:
                continue
            release = planned.cell.horovod if planned.action == "refused" else ""
            about = release, planned.reason.partition(", but")[0]
            if about not in said:
                found.append(planned)
                said.add(about)
        return found

    def _untried(
        self, axes: Mapping[str, Sequence[str]], part: Mapping[str, str]
    ) -> Optional[Planned]:
        """A cell with ``part``, which cannot be tried, and why; None where there is none."""
        row = cover.first(axes, self._exists_unrefused, part)
        if row:
            reason = self.here.lacks(self.matrix, row)
            return Planned(Cell(**row), "skipped", reason) if reason else None
        row = cover.first(axes, self._exists, part)
        return Planned(Cell(**row), "refused", self._message(row)) if row else None

    def _possible(self, values: Mapping[str, str]) -> bool:
        return self._exists_unrefused(values) and not self.here.lacks(self.matrix, values)

    def _exists_unrefused(self, values: Mapping[str, str]) -> bool:
        return self._exists(values) and not self._message(values)

    def _exists(self, values: Mapping[str, str]) -> bool:
        return wanted.exists(self.matrix, values)

    def _message(self, values: Mapping[str, str]) -> str:
        return self._refusal(tuple(sorted(values.items())))

    def _refused(self, items: Tuple[Tuple[str, str], ...]) -> str:
        values = dict(items)
        if "horovod" not in values:
            # most of the recipe's conditions are of a release
            return ""
        text = wanted.concrete(self.matrix, values, self.here)
        return wanted.refusal(text, partly=len(values) < len(AXES))
