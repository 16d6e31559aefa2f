"""The page and its picture say what the results say."""

from __future__ import annotations

import dataclasses

import pytest

from hvd.core.errors import HvdError
from hvd.matrix import definition, page, picture
from hvd.matrix.definition import Expected
from hvd.report import canvas
from tests import matrix as made

matrix = definition.load()
PASSED = made.result(
    versions={"Horovod": "0.28.1", "Python": "3.11.7", "openmpi": "4.1.8", "gcc": "12.2.0"},
    distributions={"torch": "2.13.0+cpu", "numpy": "2.4.6"},
    checks={"check-build": True, "mpirun": True},
    examples={"pytorch": {"1": 1000.0, "2": 1500.0}},
    upstream={"test_torch.py, mpirun": {"passed": 100, "failed": 3, "skipped": 12}},
)
FAILED = made.result(
    "failed",
    made.cell(framework="mxnet-1.9", mpi="mpich-5"),
    stage="smoke",
    reason="AttributeError: module 'numpy' has no attribute 'bool' | x",
    cause="mxnet-numpy",
    date="2026-02-01",
)
REFUSED = [
    made.result("refused", made.cell(horovod="0.24.3"), reason="py-horovod@0.24.3: too old"),
    # as earlier releases wrote it
    made.result("refused", made.cell(horovod="0.23.0"), reason="py-horovod: too old"),
]
SKIPPED = made.result("skipped", made.cell(mpi="system"), reason="there is no MPI on PATH")
RESULTS = [PASSED, FAILED, *REFUSED, SKIPPED]


def section(title, text):
    return text.partition(f"## {title}")[2].partition("##")[0]


def test_the_page_of_this_checkout_is_what_its_results_say():
    page.write(matrix, check=True)


@pytest.mark.parametrize(
    ("title", "row"),
    [
        ("What was built", "| 0.28.1 | torch 2.13.0+cpu | 3.11.7 | openmpi 4.1.8 | both | default "
         "| 3 | gcc 12.2.0 | pip | check-build, mpirun | 1 min 40 s | 2026-01-31 |"),
        ("What failed", "| smoke | AttributeError: module 'numpy' has no attribute 'bool' \\| x | "
         "MXNet 1.9.1 uses a name that NumPy 1.24 removed. "
         "[github.com/apache/mxnet/issues/21165](https://github.com/apache/mxnet/issues/21165) |"),
        ("Horovod's own", "| test_torch.py, mpirun | 100 | 3 | 12 |"),
        ("Two ranks", "| pytorch | 1000 | 1500 | 0.75 |"),
        ("What the recipe", "| 0.23.0, 0.24.3 | pytorch-2.13 | too old |"),
        ("What was skipped", "| 0.28.1 | pytorch-2.13 | there is no MPI on PATH |"),
    ],
)  # fmt: skip
def test_the_page_has_a_row_for_every_result_and_no_empty_section(title, row):
    assert row in section(title, page.page(matrix, RESULTS))
    others = [each for each in RESULTS if each is not PASSED]
    if title != "What was built":
        plain = dataclasses.replace(PASSED, examples={}, upstream={})
        assert title not in page.page(matrix, [plain])
    assert "test_torch" not in page.page(matrix, others)


def test_the_page_begins_with_counts_dates_and_a_row_for_each_framework_that_was_tried():
    text = page.page(matrix, RESULTS)
    counts = "5 cells: 1 passed, 1 failed, 2 refused, 1 skipped"
    assert text.startswith(f"{counts}; 2026-01-31 to 2026-02-01.\n")
    rows = [line for line in text.partition("##")[0].splitlines() if line.endswith("of 1 |")]
    assert [row.split(" | ")[0] for row in rows] == ["| pytorch-2.13", "| mxnet-1.9"]
    many = [made.result(of=made.cell(horovod=v)) for v in matrix.axes["horovod"][:6]]
    text = page.page(matrix, many)
    assert text.startswith("6 cells: 6 passed; 2026-01-31.\n")
    assert "| 0.24.3 to 0.28.1 (6) |" in text
    assert page.page(matrix, []) == "No cell has been tried yet.\n"


def test_a_failed_cell_says_everything_that_is_known_of_it():
    note = Expected({"mpi": "mpich-5"}, "It hangs.", "https://a.b/1")
    noted = dataclasses.replace(matrix, expected=(note,))
    assert "It hangs. [a.b/1](https://a.b/1)" in page.page(noted, [FAILED])
    unknown = dataclasses.replace(FAILED, cause="")
    assert "not known yet" in page.page(matrix, [unknown])
    bounded = dataclasses.replace(unknown, spec="py-horovod@0.28.1 +mpi ^openmpi@3.1.3")
    assert "Refused by the recipe: Open MPI 3.1.3 hangs" in page.page(matrix, [bounded])


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Another page with other results."""
    path = tmp_path / "PAGE"
    path.write_text(f"# Ours\n\n{page.BEGIN}\n<!-- end -->\n\nmore\n")
    monkeypatch.setattr(page, "PAGE", path)
    monkeypatch.setattr(page, "PICTURE", tmp_path / "picture.svg")
    monkeypatch.setattr(page.result, "load_all", lambda: RESULTS)
    return tmp_path


def test_what_is_stale_is_refused_by_check_and_then_written(elsewhere, monkeypatch):
    with pytest.raises(HvdError, match="PAGE.*svg"):
        page.write(matrix, check=True)
    assert not (elsewhere / "picture.svg").exists()
    assert len(page.write(matrix)) == 2
    page.write(matrix, check=True)
    assert page.write(matrix) == []
    text = (elsewhere / "PAGE").read_text()
    assert text.startswith("# Ours\n") and text.endswith("\nmore\n") and "MXNet" in text
    drawn = (elsewhere / "picture.svg").read_text()
    assert canvas.digest_of(drawn) == picture.digest(RESULTS)
    # other results, another picture
    monkeypatch.setattr(page.result, "load_all", lambda: RESULTS[1:])
    with pytest.raises(HvdError, match="picture.svg"):
        page.write(matrix, check=True)


def test_the_picture_is_the_same_each_time_and_has_no_date():
    drawn = picture.draw(matrix, RESULTS)
    assert drawn == picture.draw(matrix, RESULTS)
    assert drawn.startswith(b"<?xml") and b"<dc:date>" not in drawn


def test_a_cell_for_another_processor_names_it_and_its_root():
    power = made.result(
        of=made.cell(target="power9le"),
        versions={"gcc": "12.2.0"},
        host={"root": "bookworm-ppc64el"},
    )
    assert "| gcc 12.2.0 for power9le in bookworm-ppc64el | pip |" in page.page(matrix, [power])
