"""Results are kept: whole, by their schema, and never replaced by a skip."""

from __future__ import annotations

import json

import pytest

from hvd.core.errors import HvdError
from hvd.matrix import definition, result
from tests import matrix


def test_a_result_can_be_read_again(tmp_path):
    kept = matrix.result(
        "failed",
        reason="a.cc:1: error: x",
        stage="build",
        versions={"Horovod": "0.28.1"},
        checks={"mpirun": True},
        examples={"pytorch": {"1": 100.0, "2": 150.0}},
        host={"cores": 2},
    )
    result.save(kept, tmp_path)
    assert result.load_all(tmp_path) == [kept]
    assert result.file(kept.cell, tmp_path).name.startswith("0.28.1_pytorch-2.13_py3.11_openmpi")
    assert kept.efficiency("pytorch") == 0.75 and kept.efficiency("keras") == 0
    assert kept.total == 120


def test_a_result_without_a_build_does_not_replace_one_with_a_build(tmp_path):
    for outcome, kept in (
        ("skipped", "skipped"),
        ("refused", "refused"),
        ("passed", "passed"),
        ("skipped", "passed"),
        ("refused", "passed"),
        ("failed", "failed"),
    ):
        result.save(matrix.result(outcome, reason="no"), tmp_path)
        assert [each.result for each in result.load_all(tmp_path)] == [kept]


def test_results_without_a_build_are_forgotten_if_their_cells_are_no_longer_planned(tmp_path):
    built = matrix.result("passed", matrix.cell(python="3.13"))
    planned = matrix.result("skipped", matrix.cell(compiler="gcc-14"), reason="no g++-14")
    gone = matrix.result("skipped", matrix.cell(mpi="system"), reason="no MPI")
    for each in (built, planned, gone):
        result.save(each, tmp_path)
    result.forget({planned.cell.id}, tmp_path)
    assert result.load_all(tmp_path) == [planned, built]


def test_what_breaks_the_schema_is_neither_written_nor_read(tmp_path):
    with pytest.raises(HvdError, match="key 'date'"):
        result.save(matrix.result(date="today"), tmp_path)
    assert not list(tmp_path.iterdir())
    result.save(matrix.result(), tmp_path)
    (path,) = tmp_path.iterdir()
    data = json.loads(path.read_text())
    for change in ({"format": 1}, {"cell": {**data["cell"], "mpi": "mpich-4"}}):
        path.write_text(json.dumps({**data, **change}))
        with pytest.raises(HvdError, match=f"{path.name}.*key '{next(iter(change))}'"):
            result.load_all(tmp_path)


def test_the_results_of_this_checkout_are_of_cells_that_the_matrix_has():
    axes = definition.load().axes
    for each in result.load_all():
        for axis, value in each.cell.values.items():
            assert value in axes[axis], f"{each.cell.id}: {axis}"
        assert each.tried or each.reason
