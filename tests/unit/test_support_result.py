"""What came of a cell is kept: whole, as its schema says, and never lost to a skip."""

from __future__ import annotations

import json

import pytest

from hvd.core.errors import HvdError
from hvd.matrix import definition, result
from tests import matrix


def test_a_result_comes_back_as_it_was_kept(tmp_path):
    kept = matrix.result(
        "failed",
        reason="a.cc:1: error: x",
        stage="build",
        versions={"Horovod": "0.28.1"},
        checks={"mpirun": True},
        examples={"pytorch": {"1": 100.0, "2": 150.0}},
        host={"cores": 2},
    )
    assert result.save(kept, tmp_path)
    assert result.load_all(tmp_path) == [kept]
    assert result.file(kept.cell, tmp_path).name.startswith("0.28.1_pytorch-2.13_py3.11_openmpi")
    assert kept.efficiency("pytorch") == 0.75 and kept.efficiency("keras") == 0
    assert kept.total == 120


def test_what_took_no_build_does_not_take_the_place_of_what_did(tmp_path):
    assert result.save(matrix.result("skipped", reason="no MPI"), tmp_path)
    assert result.save(matrix.result("passed"), tmp_path)
    assert not result.save(matrix.result("skipped", reason="no MPI"), tmp_path)
    assert not result.save(matrix.result("refused", reason="no"), tmp_path)
    assert [each.result for each in result.load_all(tmp_path)] == ["passed"]
    assert result.save(matrix.result("failed"), tmp_path)
    assert [each.result for each in result.load_all(tmp_path)] == ["failed"]


def test_what_was_skipped_and_is_planned_no_more_is_forgotten(tmp_path):
    built = matrix.result("passed", matrix.cell(python="3.13"))
    planned = matrix.result("skipped", matrix.cell(compiler="gcc-14"), reason="no g++-14")
    gone = matrix.result("skipped", matrix.cell(mpi="system"), reason="no MPI")
    for each in (built, planned, gone):
        result.save(each, tmp_path)
    result.forget({planned.cell.id}, tmp_path)
    assert result.load_all(tmp_path) == [planned, built]


def test_nothing_is_written_that_is_not_as_the_schema_says(tmp_path):
    with pytest.raises(HvdError, match="key 'result': 'maybe' is none of passed"):
        result.save(matrix.result("maybe"), tmp_path)
    with pytest.raises(HvdError, match="key 'date'"):
        result.save(matrix.result(date="today"), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("spec"), "key 'spec' is missing"),
        (lambda data: data.update(colour="red"), "key 'colour' is unknown"),
        (lambda data: data.update(format=1), "key 'format'"),
        (lambda data: data["cell"].update(mpi="mpich-4"), "key 'cell' is that of 0.28.1_py"),
    ],
)
def test_a_damaged_file_is_named_with_its_key(tmp_path, change, message):
    result.save(matrix.result(), tmp_path)
    (path,) = tmp_path.iterdir()
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(HvdError, match=message) as caught:
        result.load_all(tmp_path)
    assert path.name in caught.value.message
    path.write_text("{")
    with pytest.raises(HvdError, match=path.name):
        result.load_all(tmp_path)


def test_the_results_of_this_checkout_are_of_cells_that_the_matrix_has():
    axes = definition.load().axes
    for each in result.load_all():
        for axis in definition.AXES:
            assert getattr(each.cell, axis) in axes[axis], f"{each.cell.id}: {axis}"
        assert each.result in result.TRIED or each.reason
