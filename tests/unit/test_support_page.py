"""The page and its picture say what the results say."""

from __future__ import annotations

import dataclasses

import pytest

from hvd.core.errors import HvdError
from hvd.matrix import definition, page, picture, result
from hvd.matrix.definition import Expected
from hvd.report import canvas
from tests import matrix as made

matrix = definition.load()
PASSED = made.result(
    versions={"Horovod": "0.28.1", "Python": "3.11.7", "openmpi": "4.1.8", "gcc": "12.2.0"},
    distributions={"torch": "2.13.0+cpu", "numpy": "2.4.6"},
    checks={"check-build": True, "mpirun": True},
    examples={"pytorch": {"1": 1000.0, "2": 1500.0}},
)
FAILED = made.result(
    "failed",
    made.cell(framework="mxnet-1.9", mpi="mpich-5"),
    stage="smoke",
    reason="AttributeError: module 'numpy' has no attribute 'bool' | x",
    cause="mxnet-numpy",
    date="2026-02-01",
)
REFUSED = made.result(
    "refused",
    made.cell(horovod="0.24.3"),
    reason="py-horovod: Horovod 0.24 is not known to work with PyTorch 2.1 and later",
)
SKIPPED = made.result("skipped", made.cell(mpi="system"), reason="there is no MPI on PATH")
RESULTS = [PASSED, FAILED, REFUSED, SKIPPED]


def test_the_page_of_this_checkout_is_what_its_results_say():
    page.write(matrix, check=True)


def test_the_page_has_every_cell_with_the_versions_that_were_used():
    text = page.page(matrix, RESULTS)
    assert "4 cells: 1 passed, 1 failed, 1 refused, 1 skipped; 2026-01-31 to 2026-02-01." in text
    passed = text.partition("## What was built and run")[2].partition("##")[0]
    for used in (
        "torch 2.13.0+cpu",
        "3.11.7",
        "openmpi 4.1.8",
        "gcc 12.2.0",
        "check-build, mpirun",
    ):
        assert used in passed
    assert "| 1000 | 1500 | 0.75 |" in text
    assert "there is no MPI on PATH" in text and "Horovod 0.24 is not known to work" in text


def test_cells_of_one_day_are_not_dated_from_it_to_itself():
    assert page.page(matrix, [PASSED, SKIPPED]).startswith(
        "2 cells: 1 passed, 1 skipped; 2026-01-31.\n"
    )


def test_a_red_cell_says_why_and_links_upstream():
    text = page.page(matrix, RESULTS).partition("## What failed")[2].partition("##")[0]
    assert "has no attribute 'bool' \\| x" in text
    assert "MXNet 1.9.1 uses a name that NumPy 1.24 took away." in text
    link = "https://github.com/apache/mxnet/issues/21165"
    assert f"[{link.partition('//')[2]}]({link})" in text
    note = Expected({"mpi": "mpich-5"}, "It hangs.", "https://a.b/1")
    noted = dataclasses.replace(matrix, expected=(note,))
    assert "It hangs. [a.b/1](https://a.b/1)" in page.page(noted, RESULTS)
    unknown = dataclasses.replace(FAILED, cause="")
    assert "not known yet" in page.page(matrix, [unknown])
    bounded = dataclasses.replace(unknown, spec="py-horovod@0.28.1 +mpi ^openmpi@3.1.3")
    assert "Refused by the recipe: Open MPI 3.1.3 hangs" in page.page(matrix, [bounded])


def test_the_page_begins_with_a_row_for_each_framework_that_was_tried():
    lines = page.page(matrix, RESULTS).partition("## What was built")[0].splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    tried = {each.cell.framework for each in RESULTS if each.result in result.TRIED}
    assert {row.split(" | ")[0].strip("| ") for row in rows[2:]} == tried
    many = [made.result(of=made.cell(horovod=v)) for v in matrix.axes["horovod"][:6]]
    assert "| 0.24.3 to 0.28.1 (6) |" in page.page(matrix, many)


def test_the_page_has_what_came_of_horovod_s_own_tests():
    counts = {"test_torch.py, mpirun": {"passed": 100, "failed": 3, "skipped": 12}}
    text = page.page(matrix, [made.result(upstream=counts)])
    assert "| test_torch.py, mpirun | 100 | 3 | 12 |" in text
    assert "Horovod's own tests" not in page.page(matrix, RESULTS)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A page and results that are ours to change."""
    path = tmp_path / "PAGE"
    path.write_text(f"# Ours\n\n{page.BEGIN}\n<!-- end -->\n\nmore\n")
    monkeypatch.setattr(page, "PAGE", path)
    monkeypatch.setattr(page, "PICTURE", tmp_path / "picture.svg")
    monkeypatch.setattr(page.result, "load_all", lambda: RESULTS)
    return tmp_path


def test_what_is_stale_is_refused_by_check_and_then_written(elsewhere, monkeypatch):
    with pytest.raises(HvdError, match="not what the results in docs/matrix say: .*PAGE.*svg"):
        page.write(matrix, check=True)
    assert not (elsewhere / "picture.svg").exists()
    assert len(page.write(matrix)) == 2
    page.write(matrix, check=True)
    assert page.write(matrix) == []
    text = (elsewhere / "PAGE").read_text()
    assert text.startswith("# Ours\n") and text.endswith("\nmore\n") and "MXNet" in text
    drawn = (elsewhere / "picture.svg").read_text()
    assert canvas.digest_of(drawn) == picture.digest(RESULTS)
    # another result, another picture
    monkeypatch.setattr(page.result, "load_all", lambda: RESULTS[1:])
    with pytest.raises(HvdError, match="picture.svg"):
        page.write(matrix, check=True)


def test_the_picture_is_the_same_each_time_and_has_no_date():
    drawn = picture.draw(matrix, RESULTS)
    assert drawn == picture.draw(matrix, RESULTS)
    assert drawn.startswith(b"<?xml") and b"<dc:date>" not in drawn


def test_a_page_without_a_place_for_it_is_named(elsewhere):
    (elsewhere / "PAGE").write_text("# Ours\n")
    with pytest.raises(HvdError, match="PAGE has no place for what is made"):
        page.write(matrix)


def test_no_result_no_picture():
    assert page.page(matrix, []) == "No cell has been tried yet.\n"
    assert result.DIRECTORY.name == "matrix"
