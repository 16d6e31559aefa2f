"""What cannot be right is an error on every rank, which says what to write instead."""

from __future__ import annotations

import ast
import pathlib

import pytest

MODULE = pathlib.Path(__file__).with_name("refused.py")


def programs() -> list:
    return [
        each.name
        for each in ast.parse(MODULE.read_text()).body
        if isinstance(each, ast.FunctionDef) and each.name.startswith("refuse_")
    ]


@pytest.mark.parametrize("program", programs())
def test_refused_on_every_rank(ranks, program):
    """The program returns what it was told; its docstring has words that are in it."""
    tree = ast.parse(MODULE.read_text())
    (function,) = (each for each in tree.body if getattr(each, "name", "") == program)
    told = ranks.values(f"refused.{program}")
    for words in ast.get_docstring(function).split("\n"):
        assert all(words in each for each in told), told
    # and Horovod goes on
    assert ranks.values("refused.sum_of_ranks") == [ranks.size * (ranks.size - 1) / 2] * ranks.size
