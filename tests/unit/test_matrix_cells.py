"""The cells of the support matrix, what they are made from, their results, and the page."""

from __future__ import annotations

import dataclasses
import re

import pytest
from packaging.requirements import Requirement

from hvd.core.errors import HvdError
from hvd.matrix import cells, here, page, results
from hvd.matrix.cells import Cell
from hvd.model import recipe
from hvd.model.recipe import Directive
from tests import matrix as made

matrix = cells.matrix()
py_horovod = recipe.load("py-horovod")
TORCH = Cell("pytorch-2.13")
OLD = Cell("tensorflow-2.3", horovod="0.20.3", python="3.8")


def test_the_cells_cover_what_is_claimed():
    ids = [cell.id for cell in matrix.cells]
    assert len(set(ids)) == len(ids)
    pairs = {(cell.mpi, cell.framework.partition("-")[0]) for cell in matrix.cells}
    for mpi in (*matrix.mpi, "system", "none"):
        assert {(mpi, "pytorch"), (mpi, "tensorflow")} <= pairs
    assert {cell.framework for cell in matrix.cells} == set(matrix.frameworks)
    assert {cell.operations for cell in matrix.cells} == set(matrix.operations)
    # the newest of each series
    series = {tuple(v.split(".")[:2]): v for v in reversed(list(py_horovod.versions()))}
    assert set(series.values()) <= {cell.horovod for cell in matrix.cells}
    both = {(cell.mpi == "none", cell.controllers == "gloo") for cell in matrix.cells}
    assert both == {(True, True), (False, False)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("mpi: openmpi-5.0}\n", "mpi: openmpi-50}\n"), "unknown mpi 'openmpi-50'"),
        (("- {framework: spark-4}", "- {framework: spark-4, pyton: '3.9'}"), "pyton"),
        (("- {framework: spark-4}", "- {framework: spark-4, horovod: 0.28.9}"), "0.28.9"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, change, message):
    copy = tmp_path / "matrix.yaml"
    copy.write_text(cells.FILE.read_text().replace(*change, 1))
    with pytest.raises(HvdError, match=message):
        cells.load(copy)


def test_a_cell_has_what_the_recipe_declares_and_nothing_more():
    """Horovod 0.24 and 0.25 import packaging, 0.23 does not; 0.19 alone imports six."""

    def names(**values):
        cell = Cell(**{"framework": "tensorflow-2.3", "python": "3.9", **values})
        return {Requirement(text).name for text in matrix.requirements(cell)}

    has = {version: names(horovod=version) for version in ("0.28.1", "0.24.3", "0.23.0", "0.19.5")}
    assert {v for v, found in has.items() if "packaging" in found} == {"0.28.1", "0.24.3"}
    assert {v for v, found in has.items() if "six" in found} == {"0.19.5"}
    assert all("cloudpickle" in found for found in has.values())
    # the checks compare with it
    assert "numpy" in names(framework="pytorch-2.13", python="3.11")
    # TensorFlow 2.6 has a six of its own
    assert "six" in names(framework="tensorflow-2.6", horovod="0.23.0")
    assert "psutil" not in names(framework="pytorch-alone", python="3.11")
    assert matrix.requirements(Cell("pytorch-1.13", mpi="system")) == []
    assert "torch==2.13.0" in matrix.requirements(TORCH)


def test_what_makes_a_result_stale(monkeypatch):
    known = {each: made.result(each) for each in (TORCH, OLD)}
    assert [each.stale(matrix, cell) for cell, each in known.items()] == [[], []]
    assert dataclasses.replace(known[OLD], inputs={}).stale(matrix, OLD)
    spack = dataclasses.replace(TORCH, engine="spack-1.2")
    assert made.result(spack, inputs=matrix.inputs(TORCH)).stale(matrix, spack) == ["spack"]
    tested = made.result(TORCH, upstream={"test_torch.py": {"passed": 1}})
    assert tested.stale(matrix, TORCH) == ["tests"]
    newer = dataclasses.replace(matrix, mpi={"openmpi-4.1": cells.Choice("openmpi@4.1.9")})
    assert known[OLD].stale(newer, OLD) == ["spec"]
    # built with a PyTorch for CUDA
    cuda = {"spec": matrix.spec(TORCH, cuda=True), "inputs": matrix.inputs(TORCH, cuda=True)}
    assert made.result(TORCH, **cuda).stale(matrix, TORCH) == []

    # a patch for another release is no matter
    left = tuple(
        d for d in py_horovod.directives if "patches/cxx-standard.patch" not in d.arguments
    )
    without = dataclasses.replace(py_horovod, directives=left)
    monkeypatch.setattr(cells, "horovod", lambda: without)
    assert known[TORCH].stale(matrix, TORCH) == ["patches"]
    assert known[OLD].stale(matrix, OLD) == []


def test_words_and_context_of_a_patch_are_no_matter():
    one = "Why.\n\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n"
    other = "Because.\n- List.\n\n--- a/x\n+++ b/x\n@@ -7,2 +7,2 @@\n-old\n+new\n same again\n"
    assert cells._changes(one) == cells._changes(other) == ["+++ b/x", "-old", "+new"]


def test_every_result_agrees_with_the_recipe_and_the_file():
    for cell in matrix.cells:
        result = results.load().get(cell.id, made.result(cell))
        refused = made.refusals(py_horovod, result)
        if result.result == "passed":
            assert not refused and not cell.fails, (cell.id, refused)
        else:
            assert refused or cell.fails, f"{cell.id}: add a bound to package.py, or fails"
    directives = (*py_horovod.directives, Directive("conflicts", ("^py-torch@2.13:",), {}, ()))
    bounded = dataclasses.replace(py_horovod, directives=directives)
    assert made.refusals(bounded, results.load()[TORCH.id])


def test_results_are_replaced_and_those_of_former_cells_dropped(tmp_path):
    file = tmp_path / "matrix.jsonl"
    former = Cell("pytorch-2.13", python="3.9")
    failed = made.result(TORCH, "failed", stage="build", reason="a.cc:1: error: ü")
    for each in (made.result(former), made.result(matrix.cells[1]), made.result(TORCH), failed):
        results.save(each, matrix, file)
    assert list(results.load(file)) == [TORCH.id, matrix.cells[1].id]
    assert results.load(file)[TORCH.id] == failed
    for line, message in (("{", "line 3"), ('{"cell": "x"}', "'result'|result")):
        file.write_text("".join(file.read_text().splitlines(True)[:2]) + line)
        with pytest.raises(HvdError, match=message):
            results.load(file)


def test_the_page_says_what_the_results_say(tmp_path, monkeypatch):
    page.write(matrix, check=True)
    failed = Cell("mxnet-1.9", mpi="mpich-4", fails="It hangs: https://a.b/1")
    passed = made.result(TORCH, versions={"PyTorch": "2.13.0+cpu"}, inputs={})
    broken = made.result(failed, "failed", stage="smoke", reason="mpirun: a | b")
    few = dataclasses.replace(matrix, cells=(TORCH, failed, OLD))
    text = page.page(few, {TORCH.id: passed, failed.id: broken})
    for line in (
        "3 cells: 1 passed, 1 failed, 1 not tried, 1 stale; tried 2026-01-31 to 2026-01-31.",
        "| pytorch-2.13 | PyTorch 2.13.0 | 3.11 | openmpi-4.1 | 1 passed, 1 stale |  |",
        f"| {failed.id} | smoke | mpirun: a \\| b | It hangs: https://a.b/1 |",
    ):
        assert line in text
    assert "own tests" not in text and page.page(few, {})
    monkeypatch.setattr(page, "PAGE", tmp_path / "PAGE")
    page.PAGE.write_text(f"# Ours\n\n{page.BEGIN}\n<!-- end -->\n\nmore\n")
    with pytest.raises(HvdError, match="PAGE"):
        page.write(matrix, check=True)
    page.write(matrix)
    page.write(matrix, check=True)
    assert page.PAGE.read_text().endswith("\nmore\n")


def test_filters_and_shards():
    found = cells.chosen(matrix.cells, ["python=3.9,3.10", "spark"], "1/1")
    assert [(c.framework, c.python) for c in found] == [("spark-3", "3.9"), ("spark-3", "3.10")]
    parts = [cells.chosen(matrix.cells, [], f"{number}/3") for number in (1, 2, 3)]
    assert sum(parts, []) == list(matrix.cells)
    assert max(map(len, parts)) <= 1 + min(map(len, parts))
    for wrong in ((["pyton=3.9"], "1/1"), ([], "3/2"), ([], "0/2")):
        with pytest.raises(HvdError, match="'(pyton|3/2|0/2)'"):
            cells.chosen(matrix.cells, *wrong)


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"target": "power9le"}, "not power9le; in a Debian root: .*bookworm-ppc64el"),
        ({"python": "3.5"}, "no Python 3.5"),
        ({"mpi": "system"}, "no MPI on PATH"),
        ({"compiler": "clang-19"}, r"no clang\+\+-19 on PATH.*trixie"),
        ({"framework": "spark-4"}, "no java"),
        ({"operations": "rocm-6.4"}, "no HIP 6.4 on PATH.*sid-rocm-6"),
        ({"framework": "pytorch-system"}, "has no PyTorch"),
    ],
)
def test_a_skip_says_what_is_lacking(tmp_path, monkeypatch, values, missing):
    (tmp_path / "c++").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(here.machine, "processor", lambda: "icelake")
    monkeypatch.setattr(here, "interpreter", lambda v: "" if v == "3.5" else "/bin/false")
    found = here.lacks(matrix, Cell(**{"framework": "pytorch-2.13", **values}))
    assert re.search(missing, found)
    assert here.lacks(matrix, TORCH) == "" or "framework" in values
