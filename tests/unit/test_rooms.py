"""The rooms of ci/src/hvd: each one uses only those below it."""

from __future__ import annotations

import ast
from typing import Set

import pytest

from hvd.core import paths

SOURCE = paths.SOURCE / "hvd"
#: From the ground up.
ROOMS = (
    *("core", "model", "fetch", "host", "report", "launch", "timeline", "smoke", "solve"),
    *("cache", "deliver", "docs", "reframe", "survey", "doctor", "matrix", "build"),
    *("rehearse", "bench", "gpu", "upkeep", "ci", "cli"),
)


def used(room: str) -> Set[str]:
    """The rooms that the files of ``room`` import from."""
    found = set()
    for file in (SOURCE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hvd."):
                found.add(node.module.split(".")[1])
            if isinstance(node, ast.Import):
                names = [alias.name.split(".") for alias in node.names]
                found |= {name[1] for name in names if name[0] == "hvd" and len(name) > 1}
    return found - {room}


def test_every_room_has_its_floor():
    there = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert there == set(ROOMS)
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_uses_those_below_it_alone(room):
    assert used(room) <= set(ROOMS[: ROOMS.index(room)])


def test_programs_of_spack_s_interpreter_are_in_one_place():
    inside = SOURCE / "solve" / "queries"
    for file in SOURCE.rglob("*.py"):
        imports = [
            node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        ]
        uses = any(name.split(".")[0] == "spack" for name in imports)
        assert not uses or file.parent == inside, file
