"""Raise the recipe's upper bound of a framework, in its source and in the test of the bound."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import List, Optional, Tuple

from hvd.core import paths
from hvd.model import recipe, specs
from hvd.model.environment import HOROVOD
from hvd.upkeep.proposal import Change

RECIPE = paths.PACKAGES / HOROVOD.replace("-", "_") / "package.py"
CONSTRAINTS = pathlib.Path("tests", "constraints.py")
_OPEN = re.compile(r"@(\d+)\.(\d+):$")


def refused_from(package: str, version: str) -> str:
    """Return the series from which the newest Horovod refuses ``package``; empty for none."""
    known = recipe.load(HOROVOD)
    spec = specs.parse(f"{HOROVOD}@{next(iter(known.versions()))} ^{package}@{version}")
    for directive in known.refusals(known.complete(spec)):
        match = _OPEN.search(str(directive.arguments[0]))
        if match and f"^{package}@" in directive.arguments[0]:
            return ".".join(match.groups())
    return ""


def raised(package: str, refused: str, version: str) -> Optional[List[Change]]:
    """Return the changes that let the newest Horovod have ``version``, and no later series.

    Every mention of the old bound in the directive, its message and its comment changes, and so
    do the lines of the test that have both sides of it.

    Args:
        refused: the series that :func:`refused_from` returns.

    Returns:
        None if there is not one such directive.
    """
    major, minor = map(int, refused.split("."))
    new_major, new_minor = map(int, version.split(".")[:2])
    exchange = {f"{major}.{minor - 1}": f"{new_major}.{new_minor}"}
    exchange[refused] = f"{new_major}.{new_minor + 1}"
    lines = RECIPE.read_text().split("\n")
    places = [
        (begin, end)
        for begin, end in _statements(lines)
        if package in (text := "\n".join(lines[begin:end])) and _mention(refused).search(text)
    ]
    if len(places) != 1:
        return None
    tests = paths.ROOT / CONSTRAINTS
    both = [
        number
        for number, line in enumerate(tests.read_text().split("\n"))
        if all(_mention(each).search(line) for each in exchange)
        and ("py-" not in line or package in line)
    ]
    either = re.compile("|".join(_mention(each).pattern for each in exchange))
    changes = [
        Change.of(file, number + 1, lambda line: either.sub(lambda m: exchange[m[0]], line))
        for file, numbers in ((RECIPE, range(*places[0])), (tests, both))
        for number in numbers
    ]
    return [each for each in changes if each.after != each.before]


def _statements(lines: List[str]) -> List[Tuple[int, int]]:
    """Return first and last line of each directive of the class, with the comment above it."""
    tree = ast.parse("\n".join(lines))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    found = []
    for node in body:
        begin = node.lineno - 1
        while lines[begin - 1].lstrip().startswith("#"):
            begin -= 1
        found.append((begin, node.end_lineno or begin))
    return found


def _mention(series: str) -> re.Pattern:
    """A series by itself, or as the beginning of a version: of 2.16 also 2.16.0, not 12.16."""
    return re.compile(rf"(?<![\d.]){re.escape(series)}(?!\d)")
