"""Choose the cells: which to try here, which the recipe refuses, which this machine cannot try."""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from hvd.core.errors import HvdError
from hvd.matrix import cover
from hvd.matrix.definition import AXES, Cell
from hvd.matrix.needs import Needs


@dataclasses.dataclass(frozen=True)
class Planned:
    """A cell to ``try``, or one that is ``refused`` by the recipe or ``skipped`` here, and why."""

    cell: Cell
    action: str = "try"
    reason: str = ""


def plan(needs: Needs, earlier: Sequence[Cell] = ()) -> List[Planned]:
    """Choose the cells of ``must`` and of each block.

    In each block, every pair of values that can be tried together here is in a cell that is tried.
    One cell stands for each reason of the recipe, and one for each thing that this machine lacks.

    Cells that were tried ``earlier`` come before others that would do, so that a new value, or a
    new bound of the recipe, adds cells instead of exchanging them all.  Those that were tried on
    another machine and cannot be tried here are skipped.

    Raises:
        HvdError: ``must`` asks for a cell that cannot exist.
    """
    found: Dict[Cell, Planned] = {}
    for number, part in enumerate(needs.matrix.must):
        planned = _first(needs, needs.matrix.axes, part)
        if not planned:
            raise HvdError(
                f"ci/matrix.yaml: key 'must:{number}': there is no such cell",
                "see the Pythons that its framework has wheels for",
            )
        found.setdefault(planned.cell, planned)
    before = [cell.values for cell in earlier]
    for axes in needs.matrix.blocks.values():
        tried = [each.cell.values for each in found.values() if each.action == "try"]
        for planned in _block(needs, axes, tried, before):
            found.setdefault(planned.cell, planned)
    for cell in earlier:
        known = cover.within(cell.values, needs.matrix.axes) and needs.allowed(cell.values)
        if known and (reason := needs.lacks(cell.values)):
            found.setdefault(cell, Planned(cell, "skipped", reason))
    return list(found.values())


def _block(
    needs: Needs,
    axes: cover.Axes,
    tried: Sequence[cover.Values],
    earlier: Sequence[cover.Values],
) -> List[Planned]:
    """Choose the cells of a block beside those that are tried anyway, ``earlier`` ones first."""
    lacking = [
        {axis: value}
        for axis, values in axes.items()
        for value in values
        if needs.lacks({axis: value})
    ]
    there = {
        axis: [value for value in values if {axis: value} not in lacking]
        for axis, values in axes.items()
    }
    again = cover.adding(there, needs.possible, tried, earlier)
    rows, impossible = cover.covering(there, needs.possible, [*tried, *again])
    found = [Planned(Cell(**row)) for row in (*again, *rows)]
    said: Set[Tuple[str, str]] = set()
    for part in [*map(dict, impossible), *lacking]:
        planned = _first(needs, axes, part)
        if not planned or planned.action == "try":
            continue
        # one for each reason of a release, and one for each thing that is lacking
        release = planned.cell.horovod if planned.action == "refused" else ""
        about = release, planned.reason.partition(", but")[0]
        if about not in said:
            found.append(planned)
            said.add(about)
    return found


def _first(needs: Needs, axes: cover.Axes, part: Mapping[str, str]) -> Optional[Planned]:
    """Return the first cell with ``part``, if possible one to try; None if there is none."""
    for action, possible, reason in (
        ("try", needs.possible, needs.lacks),
        ("skipped", needs.allowed, needs.lacks),
        ("refused", needs.exists, needs.refusal),
    ):
        row = cover.first(axes, possible, part)
        if row:
            return Planned(Cell(**row), action, reason(row))
    return None


def chosen(planned: Sequence[Planned], filters: Sequence[str]) -> List[Planned]:
    """Return the cells that pass every filter: ``AXIS=VALUE[,VALUE]``, or a part of the name.

    Raises:
        HvdError: a filter names no axis.
    """
    found = list(planned)
    for text in filters:
        axis, equals, values = text.partition("=")
        if not equals:
            found = [each for each in found if text in each.cell.id]
        elif axis in AXES:
            found = [each for each in found if getattr(each.cell, axis) in values.split(",")]
        else:
            raise HvdError(f"--filter: no axis is called '{axis}'", f"use {', '.join(AXES)}")
    return found


def shard(planned: Sequence[Planned], text: str) -> List[Planned]:
    """Return part K of N for ``K/N``; the parts have much the same size and the same order.

    Cells with the same framework and Python are in one part, as they share what pip installs.

    Raises:
        HvdError: ``text`` has another form.
    """
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    number, count = map(int, match.groups()) if match else (1, 0)
    if number > count:
        raise HvdError(f"--shard: '{text}' is not a part", "give K/N, such as 1/2 and 2/2")
    groups: Dict[Tuple[str, str], List[Planned]] = collections.defaultdict(list)
    for each in planned:
        groups[each.cell.framework, each.cell.python].append(each)
    parts: List[List[Planned]] = [[] for _ in range(count)]
    # the largest group first, each to the smallest part
    for group in sorted(groups.values(), key=len, reverse=True):
        min(parts, key=len).extend(group)
    return [each for each in planned if each in parts[number - 1]]
