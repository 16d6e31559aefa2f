"""The data, the expected results and the tolerances of the operations."""

from __future__ import annotations

import numpy as np
import pytest

from hvd.smoke import program_reference as reference

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int32", "int64")


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_inputs_depend_on_key_and_rank_only(dtype: str) -> None:
    two = reference.inputs("key", 2, (100,), dtype, limit=1000)
    three = reference.inputs("key", 3, (100,), dtype, limit=1000)
    other = reference.inputs("other", 2, (100,), dtype, limit=1000)
    assert all((a == b).all() for a, b in zip(two, three))
    assert (two[0] != two[1]).any()
    assert (two[0] != other[0]).any()
    assert {array.dtype for array in three} == {np.dtype(dtype)}


def test_integer_sums_use_the_range_but_do_not_overflow() -> None:
    for size in (2, 3, 64):
        arrays = reference.inputs("key", size, (1000,), "int64")
        exact = sum(array.astype(object) for array in arrays)
        assert (reference.reduced("sum", arrays)[0] == exact).all()
        assert max(abs(arrays[0])) > 2**53  # beyond what float64 could carry


def test_no_factor_hides_the_others() -> None:
    for dtype in FLOATS + INTEGERS:
        arrays = reference.inputs("key", 2, (1000,), dtype, reference.LIMITS["product"])
        assert all(array.all() for array in arrays)


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("operation", reference.REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_any_order_of_rounding_is_tolerated(operation: str, dtype: str, size: int) -> None:
    arrays = reference.inputs("key", size, (5000,), dtype)
    expected, tolerance = reference.reduced(operation, arrays)
    for ordered in (arrays, arrays[::-1]):
        got = ordered[0].copy()
        for array in ordered[1:]:
            got = {
                "min": np.minimum,
                "max": np.maximum,
                "product": np.multiply,
            }.get(operation, np.add)(got, array)
        if operation == "average":
            got = got * got.dtype.type(1 / size)
        assert reference.mismatch(got, expected, dtype, tolerance) == ""


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("operation", reference.REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_lost_or_repeated_contribution_is_not_tolerated(
    operation: str, dtype: str, size: int
) -> None:
    arrays = reference.inputs("key", size, (5000,), dtype, reference.LIMITS.get(operation))
    expected, tolerance = reference.reduced(operation, arrays)
    for wrong in (arrays[:-1], [*arrays[:-1], arrays[0]]):
        got = reference.reduced(operation, wrong)[0].astype(dtype)
        assert reference.mismatch(got, expected, dtype, tolerance) != ""


def test_average_of_integers_may_be_truncated_but_not_more() -> None:
    arrays = reference.inputs("key", 2, (1000,), "int64", reference.LIMITS["average"])
    arrays[0][:2], arrays[1][:2] = (1, 4), (2, 4)
    expected, tolerance = reference.reduced("average", arrays)
    got = np.trunc((arrays[0] + arrays[1]) / 2).astype("int64")
    assert list(got[:2]) == [1, 4]
    assert reference.mismatch(got, expected, "int64", tolerance) == ""
    for off in (-1, 1):
        wrong = got.copy()
        wrong[1] += off
        assert reference.mismatch(wrong, expected, "int64", tolerance) != ""


def test_float64_detour_through_float32_is_not_tolerated() -> None:
    arrays = reference.inputs("key", 2, (100,), "float64")
    assert (arrays[0] != arrays[0].astype("float32")).all()
    expected, tolerance = reference.reduced("sum", arrays)
    got = (arrays[0].astype("float32") + arrays[1].astype("float32")).astype("float64")
    assert reference.mismatch(got, expected, "float64", tolerance) != ""


def test_mismatch_names_the_first_wrong_element() -> None:
    expected = np.arange(6, dtype="float32").reshape(2, 3)
    got = expected.copy()
    got[1, 0] += 0.25
    got[1, 2] += 0.5
    assert reference.mismatch(got, expected, "float32", 0.1) == (
        "expected 3.0, got 3.25 at element 3"
        " (max difference 0.5, tolerance 0.1, 2 of 6 elements differ)"
    )


@pytest.mark.parametrize("tolerance", [0.0, 1.0, np.full(2, 1.0)])
def test_nan_is_never_right(tolerance: object) -> None:
    got = np.array([0.0, np.nan])
    assert "got nan at element 1" in reference.mismatch(got, np.zeros(2), "float64", tolerance)


def test_shape_and_type_have_to_match() -> None:
    expected = np.zeros((2, 3))
    assert "shape (2, 3), got (3, 2)" in reference.mismatch(expected.T, expected, "float64")
    assert "type float32, got float64" in reference.mismatch(expected, expected, "float32")


def test_empty_result_can_be_right_and_wrong() -> None:
    empty = np.zeros((0, 5))
    assert reference.mismatch(empty, empty, "float64") == ""
    assert reference.mismatch(empty, np.zeros((1, 5)), "float64") != ""


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_shares_are_uneven(size: int) -> None:
    rows = np.arange(3 * size - 1)
    shares = reference.scattered_rows(len(rows), size)
    assert [list(rows[s]) for s in shares] == [list(a) for a in np.array_split(rows, size)]
    splits = [reference.alltoall_splits(rank, size) for rank in range(size)]
    assert all(len(each) == size and min(each) >= 0 for each in splits)
    if size > 1:
        assert len({count for each in splits for count in each}) > 1
        assert splits[0] != splits[1]
