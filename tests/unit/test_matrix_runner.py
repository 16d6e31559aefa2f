"""Cells are tried one after the other, whatever happens to one of them."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import types

import pytest

from hvd.core import lock
from hvd.core.errors import HvdError
from hvd.matrix import attempt, definition, runner, toolchain
from hvd.matrix.attempt import Options
from hvd.matrix.needs import Needs
from hvd.matrix.plan import Planned
from tests import matrix as made

matrix = definition.load()
needs = Needs(matrix, made.HERE)
CELL = made.cell()


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("HVD_STATE", str(tmp_path))
    monkeypatch.setattr(toolchain, "ROOM", 0)
    return tmp_path


@pytest.fixture
def kept(monkeypatch):
    """The results that were kept."""
    kept = []
    monkeypatch.setattr(runner.result, "save", kept.append)
    return kept


def test_a_bad_cell_does_not_keep_others_from_being_tried(state, kept, monkeypatch):
    cells = [Planned(made.cell(python=version)) for version in ("3.11", "3.10", "3.9")]
    cells.append(Planned(made.cell(horovod="0.24.3"), "refused", "too new"))

    def perform(self):
        if self.cell.python == "3.10":
            raise HvdError("the disk is full")

    def prepare(self):
        if self.cell.python == "3.11":
            raise HvdError("no MPI that is known")

    monkeypatch.setattr(attempt._Attempt, "prepare", prepare)
    monkeypatch.setattr(attempt._Attempt, "perform", perform)
    results = runner.run(needs, cells, Options())
    assert [each.result for each in results] == ["skipped", "failed", "passed", "refused"]
    assert [each.reason for each in results[1:]] == ["the disk is full", "", "too new"]
    assert kept == results
    assert [each.cell for each in runner.unexpected(matrix, results)] == [cells[1].cell]


def test_an_internal_error_is_raised_after_the_other_cells(state, kept, monkeypatch):
    cells = [Planned(made.cell(python=python)) for python in ("3.9", "3.11")]

    def run(needs, planned, options):
        if planned.cell.python == "3.9":
            raise ValueError("too many values")
        return made.result(of=planned.cell)

    monkeypatch.setattr(attempt, "run", run)
    log = attempt.log(cells[0].cell)
    with pytest.raises(HvdError) as caught:
        runner.run(needs, cells, Options())
    assert [each.cell.python for each in kept] == ["3.11"] and log.name in caught.value.remedy
    assert "ValueError: too many values" in log.read_text()


@pytest.fixture
def full(state, monkeypatch):
    """A disk with room for four virtual environments, of which a cell needs one."""
    venvs = state / "matrix" / "venvs"
    for age, name in enumerate(("new", "older", "oldest")):
        (venvs / name).mkdir(parents=True)
        os.utime(venvs / name, (0, 1000 - age))

    def disk_usage(path):
        return types.SimpleNamespace(free=4 - len(list(venvs.iterdir())))

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    return venvs


@pytest.mark.parametrize(
    ("room", "left"), [(1, {"new", "older", "oldest"}), (2, {"new", "older"}), (3, {"new"})]
)
def test_what_was_used_least_recently_makes_room(full, monkeypatch, room, left):
    monkeypatch.setattr(toolchain, "ROOM", room)
    toolchain.make_room()
    assert {path.name for path in full.iterdir()} == left


def test_a_virtual_environment_that_is_used_again_is_the_last_to_go(state, monkeypatch):
    monkeypatch.setattr(toolchain.stamp, "matches", lambda *_: True)
    monkeypatch.setattr(toolchain.framework, "version", lambda python: "3.11")
    monkeypatch.setattr(toolchain.stamp, "of", lambda *_: "0123456789")
    directory = state / "matrix" / "venvs" / "mpich-4-01234567"
    directory.mkdir(parents=True)
    os.utime(directory, (0, 1000))
    assert toolchain.venv("mpich-4", sys.executable, ["mpich"], state / "log") == directory
    assert directory.stat().st_mtime > 1000


def test_a_full_disk_ends_the_run_and_spoils_no_result(full, kept, monkeypatch):
    monkeypatch.setattr(toolchain, "ROOM", 5)
    refused = Planned(made.cell(horovod="0.24.3"), "refused", "too new")
    with pytest.raises(HvdError, match="free in .*matrix") as caught:
        runner.run(needs, [refused, Planned(CELL)], Options())
    assert "HVD_STATE" in caught.value.remedy
    assert [each.result for each in kept] == ["refused"]


def test_what_a_killed_matrix_left_running_is_ended(state):
    cell = state / "matrix" / "cells" / "one"
    cell.mkdir(parents=True)
    (cell / "lock").touch()
    environment = {**os.environ, lock.MARK: lock.mark(1, cell / "lock")}
    command = [sys.executable, "-c", "input()"]
    orphan = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    try:
        runner.run(needs, [], Options())
        assert orphan.wait(10) == -9
    finally:
        orphan.kill()
        orphan.stdin.close()


INPUTS = needs.inputs(CELL)
PASSED = made.result(inputs=INPUTS, distributions={"torch": "2.13.0+cpu"})
WITH_EXAMPLES = dataclasses.replace(PASSED, examples={"pytorch": {"1": 10.0, "2": 19.0}})
COUNTS = {"test_torch.py, mpirun": {"passed": 99, "failed": 2, "skipped": 6}}
WITH_TESTS = dataclasses.replace(PASSED, upstream=COUNTS)


@pytest.mark.parametrize(
    ("before", "options", "current"),
    [
        (PASSED, {}, True),
        (made.result("failed", inputs=INPUTS), {}, True),
        (made.result("passed", inputs="other"), {}, False),
        (made.result("skipped", inputs=INPUTS), {}, False),
        (None, {}, False),
        (PASSED, {"examples": True}, False),
        (WITH_EXAMPLES, {"examples": True}, True),
        (WITH_EXAMPLES, {}, True),
        (PASSED, {"upstream_tests": True}, False),
        (WITH_TESTS, {"upstream_tests": True}, True),
        (made.result("failed", inputs=INPUTS), {"upstream_tests": True, "examples": True}, True),
    ],
)
def test_a_result_with_the_same_inputs_and_all_that_is_asked_for_is_current(
    before, options, current
):
    assert runner.current(needs, CELL, before, Options(**options)) == current


def test_an_estimate_says_what_it_is_taken_from():
    cells = [CELL, made.cell(mpi="mpich-5"), made.cell(framework="mxnet-1.9")]
    assert "not known" in runner.estimate(cells, [], cached=False)
    earlier = [made.result(), made.result(of=made.cell(mpi="mpich-4"), seconds={"build": 240.0})]
    # 120 + 180 + 180 seconds
    assert runner.estimate(cells, earlier, cached=False) == (
        "about 8 min 00 s by how long earlier cells took: "
        "1 of the same cell, 1 of the same framework, 1 of any"
    )
    # with a compiler cache, builds take another time
    assert "not known" in runner.estimate(cells, earlier, cached=True)
