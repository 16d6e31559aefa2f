"""Every pair of values that can be together is in a cell."""

from __future__ import annotations

import itertools
import random

import pytest

from hvd.matrix import cover


def brute(axes, possible):
    """Every combination that can be, and every pair in one."""
    rows = [dict(zip(axes, values)) for values in itertools.product(*axes.values())]
    rows = [row for row in rows if possible(row)]
    return rows, {pair for row in rows for pair in cover.pairs(row)}


def forbidding(pairs):
    return lambda values: (
        not any(all(values.get(axis) == value for axis, value in pair) for pair in pairs)
    )


@pytest.mark.parametrize("seed", range(12))
def test_every_pair_that_can_be_is_covered_whatever_excludes_what(seed):
    draw = random.Random(seed)
    axes = {f"a{n}": [f"{n}{v}" for v in range(draw.randint(1, 5))] for n in range(5)}
    every = list(cover.all_pairs(axes))
    possible = forbidding(draw.sample(every, min(len(every), draw.randint(0, 40))))
    rows, impossible = cover.covering(axes, possible)
    can, wanted = brute(axes, possible)
    assert all(row in can for row in rows)
    assert {pair for row in rows for pair in cover.pairs(row)} == wanted
    assert set(impossible) == set(every) - wanted
    assert (rows, impossible) == cover.covering(axes, possible)


def test_what_is_given_is_not_chosen_again():
    axes = {"a": ["1", "2"], "b": ["3", "4"], "c": ["5"]}
    given = [{"a": "1", "b": "3", "c": "5"}]
    rows, _ = cover.covering(axes, lambda values: True, given)
    assert given[0] not in rows and len(rows) == 3


def test_what_was_tried_before_counts_where_it_adds_a_pair():
    axes = {"a": ["1", "2"], "b": ["3", "4"], "c": ["5"]}
    first = {"a": "1", "b": "3", "c": "5"}
    possible = forbidding([(("a", "2"), ("b", "4"))])
    others = [
        first,
        {"a": "1", "b": "4", "c": "6"},  # of no such value
        {"a": "2", "b": "4", "c": "5"},  # impossible
        {"a": "2", "b": "3", "c": "5"},
        {"a": "2", "b": "3", "c": "5"},  # again
    ]
    assert cover.adding(axes, possible, [first], others) == [others[3]]


def test_few_cells_cover_many_axes():
    axes = {f"a{n}": list("abcd") for n in range(6)}
    rows, _ = cover.covering(axes, lambda values: True)
    assert 16 <= len(rows) <= 40


def test_the_first_combination_is_that_of_the_first_values_that_go():
    axes = {"a": ["1", "2"], "b": ["3", "4"]}
    possible = forbidding([(("a", "1"), ("b", "3"))])
    assert cover.first(axes, possible, {}) == {"a": "1", "b": "4"}
    assert cover.first(axes, possible, {"b": "3"}) == {"a": "2", "b": "3"}
    assert cover.first(axes, possible, {"a": "1", "b": "3"}) is None
