"""Choose combinations of values so that every possible pair of values is in one of them."""

from __future__ import annotations

import itertools
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from allpairspy import AllPairs

Axes = Mapping[str, Sequence[str]]
#: The values of all axes, or of the first few in their order.
Values = Dict[str, str]
#: Return whether a combination, or any that begins with these values, is possible.
Possible = Callable[[Mapping[str, str]], bool]
#: Two axes with a value of each.
Pair = Tuple[Tuple[str, str], Tuple[str, str]]


def covering(
    axes: Axes, possible: Possible, given: Sequence[Values] = ()
) -> Tuple[List[Values], List[Pair]]:
    """Find combinations that contain every possible pair; the same ones each time.

    If ``possible`` refuses the beginning of a combination, it must refuse the whole.  Combinations
    that are ``given`` are not found again.

    Returns:
        The combinations beside the given ones, and the pairs that no combination can have.
    """
    if not all(axes.values()):
        return [], []
    given = [row for row in given if within(row, axes)]
    # allpairspy asks for at least two axes, and an axis with one value has nothing to choose
    free = {axis: values for axis, values in axes.items() if len(values) > 1}
    fixed = {axis: values[0] for axis, values in axes.items() if len(values) == 1}
    rows: List[Values] = []
    if len(free) > 1:

        def combination(row: Sequence[str]) -> Values:
            return {**fixed, **dict(zip(free, row))}

        found = AllPairs(
            list(free.values()),
            filter_func=lambda row: possible(combination(row)),
            previously_tested=[[row[axis] for axis in free] for row in given],
        )
        rows = [combination(row) for row in found]
    have = {pair for row in [*rows, *given] for pair in pairs(row)}
    # allpairspy ends before it has found every pair if values exclude each other
    more, impossible = _rest(axes, possible, [p for p in all_pairs(axes) if p not in have])
    return [{axis: row[axis] for axis in axes} for row in [*rows, *more]], impossible


def adding(
    axes: Axes, possible: Possible, given: Sequence[Values], others: Sequence[Values]
) -> List[Values]:
    """Return those of ``others`` that have a pair which no earlier one and no given one has."""
    have = {pair for row in given if within(row, axes) for pair in pairs(row)}
    found = []
    for row in others:
        new = set(pairs(row)) - have
        if new and within(row, axes) and possible(row):
            found.append(row)
            have |= new
    return found


def first(axes: Axes, possible: Possible, part: Mapping[str, str]) -> Optional[Values]:
    """Return the first possible combination with the values of ``part``; None if there is none."""
    return next(_completions(axes, possible, part, {}), None)


def pairs(row: Mapping[str, str]) -> Iterator[Pair]:
    """Yield every pair of values in a combination."""
    return itertools.combinations(sorted(row.items()), 2)


def all_pairs(axes: Axes) -> Iterator[Pair]:
    """Yield every pair of values of different axes."""
    for one, other in itertools.combinations(sorted(axes), 2):
        for value, another in itertools.product(axes[one], axes[other]):
            yield (one, value), (other, another)


def within(row: Mapping[str, str], axes: Axes) -> bool:
    """Return whether each of ``axes`` has the value of ``row``."""
    return all(row[axis] in values for axis, values in axes.items())


def _rest(
    axes: Axes, possible: Possible, missing: Sequence[Pair]
) -> Tuple[List[Values], List[Pair]]:
    """Find combinations with as many of the missing pairs as fit, and the impossible pairs."""
    rows: List[Values] = []
    impossible: List[Pair] = []
    left = list(missing)
    while left:
        part: Values = {}
        for pair in left:
            joined = {**part, **dict(pair)}
            agrees = all(part.get(axis, value) == value for axis, value in pair)
            if agrees and joined != part and first(axes, possible, joined):
                part = joined
            elif not part:
                impossible.append(pair)
        row = first(axes, possible, part) if part else None
        rows += [row] if row else []
        done = {*impossible, *pairs(row or {})}
        left = [pair for pair in left if pair not in done]
    return rows, impossible


def _completions(
    axes: Axes, possible: Possible, part: Mapping[str, str], begun: Values
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
