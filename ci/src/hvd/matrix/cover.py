"""Choose combinations such that every pair of values that can be together is in one of them."""

from __future__ import annotations

import itertools
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from allpairspy import AllPairs

#: The values of all axes, or, in their order, of the first few.
Values = Dict[str, str]
#: Whether a combination, or any that begins with those values, can be.
Possible = Callable[[Mapping[str, str]], bool]
#: Two axes and a value of each.
Pair = Tuple[Tuple[str, str], Tuple[str, str]]


def covering(
    axes: Mapping[str, Sequence[str]], possible: Possible, given: Sequence[Values] = ()
) -> Tuple[List[Values], List[Pair]]:
    """Combinations in which every pair of values is that is in any: the same ones each time.

    Args:
        axes: the values of each axis.
        possible: of whole combinations and of their beginnings; what it says of a beginning
            holds for all that begins so.
        given: combinations that are tried in any case; those of other values count for nothing.

    Returns:
        The combinations beside the given ones, and the pairs that no possible one has.
    """
    # a value alone says nothing, and the library wants two axes with something to choose
    given = [row for row in given if _within(row, axes)]
    free = {axis: values for axis, values in axes.items() if len(values) > 1}
    if any(not values for values in axes.values()):
        return [], []
    fixed = {axis: values[0] for axis, values in axes.items() if len(values) == 1}
    rows: List[Values] = []
    if len(free) > 1:
        names = list(free)

        def allowed(row: Sequence[str]) -> bool:
            return possible({**fixed, **dict(zip(names, row))})

        before = [[row[axis] for axis in names] for row in given]
        found = AllPairs(list(free.values()), filter_func=allowed, previously_tested=before)
        rows = [{**fixed, **dict(zip(names, row))} for row in found]
    have = {pair for row in (*rows, *given) for pair in pairs(row)}
    # where values exclude each other, the library ends before it has found every pair
    more, impossible = _rest(axes, possible, [p for p in _all_pairs(axes) if p not in have])
    return [{axis: row[axis] for axis in axes} for row in [*rows, *more]], impossible


def adding(
    axes: Mapping[str, Sequence[str]],
    possible: Possible,
    given: Sequence[Values],
    others: Sequence[Values],
) -> List[Values]:
    """Those of ``others`` that have a pair which neither ``given`` nor one before them has.

    Args:
        axes: the values of each axis.
        possible: as for :func:`covering`.
        given: combinations that are tried in any case.
        others: combinations of any values; those that are none of ``axes`` are left out.
    """
    have = {pair for row in given if _within(row, axes) for pair in pairs(row)}
    found = []
    for row in others:
        new = set(pairs(row)) - have
        if new and _within(row, axes) and possible(row):
            found.append(row)
            have |= new
    return found


def first(
    axes: Mapping[str, Sequence[str]], possible: Possible, part: Mapping[str, str]
) -> Optional[Values]:
    """The first possible combination with the values of ``part``; None where there is none."""
    return next(_completions(axes, possible, part, {}), None)


def pairs(row: Mapping[str, str]) -> Iterator[Pair]:
    """Every pair of values in a combination."""
    return itertools.combinations(sorted(row.items()), 2)


def _rest(
    axes: Mapping[str, Sequence[str]], possible: Possible, missing: Sequence[Pair]
) -> Tuple[List[Values], List[Pair]]:
    """Combinations for ``missing`` pairs, each with as many as go; and the pairs without any."""
    rows: List[Values] = []
    impossible: List[Pair] = []
    left = list(missing)
    while left:
        part = dict(left[0])
        row = first(axes, possible, part)
        if row is None:
            impossible.append(left.pop(0))
            continue
        for pair in left[1:]:
            joined = {**part, **dict(pair)}
            agrees = all(part.get(axis, value) == value for axis, value in pair)
            if agrees and joined != part:
                better = first(axes, possible, joined)
                part, row = (joined, better) if better else (part, row)
        rows.append(row)
        have = set(pairs(row))
        left = [pair for pair in left if pair not in have]
    return rows, impossible


def _completions(
    axes: Mapping[str, Sequence[str]], possible: Possible, part: Mapping[str, str], begun: Values
) -> Iterator[Values]:
    known = {**begun, **part}
    if not possible(known):
        return
    rest = [axis for axis in axes if axis not in known]
    if not rest:
        yield {axis: known[axis] for axis in axes}
        return
    for value in axes[rest[0]]:
        yield from _completions(axes, possible, part, {**begun, rest[0]: value})


def _all_pairs(axes: Mapping[str, Sequence[str]]) -> Iterator[Pair]:
    for one, other in itertools.combinations(sorted(axes), 2):
        for value, another in itertools.product(axes[one], axes[other]):
            yield (one, value), (other, another)


def _within(row: Mapping[str, str], axes: Mapping[str, Sequence[str]]) -> bool:
    return all(row[axis] in values for axis, values in axes.items())
