"""The data, the expected results and the tolerances of the operations."""

from __future__ import annotations

import numpy as np
import pytest

from hvd.smoke import program_reference as reference
from hvd.smoke.program_reference import Expected, mismatch

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int32", "int64")


def inputs(size: int, elements: int, dtype: str, operation: str = "sum", key: str = "key"):
    return reference.inputs(key, [(elements,)] * size, dtype, operation)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_inputs_depend_on_key_and_rank_only(dtype: str) -> None:
    two, three = inputs(2, 100, dtype, "product"), inputs(3, 100, dtype, "product")
    other = inputs(2, 100, dtype, "product", "other")
    assert all((a == b).all() for a, b in zip(two, three))
    assert (two[0] != two[1]).any()
    assert (two[0] != other[0]).any()
    assert {array.dtype for array in three} == {np.dtype(dtype)}
    assert all(array.all() for array in two)  # no factor hides the others


def test_integer_sums_use_the_range_but_do_not_overflow() -> None:
    for size in (2, 3, 64):
        arrays = inputs(size, 1000, "int64")
        exact = sum(array.astype(object) for array in arrays)
        assert (reference.reduced("sum", arrays).values == exact).all()
        assert max(abs(arrays[0])) > 2**53  # beyond what float64 could carry


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("operation", reference.REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_any_order_of_rounding_is_tolerated(operation: str, dtype: str, size: int) -> None:
    arrays = inputs(size, 5000, dtype)
    expected = reference.reduced(operation, arrays)
    combine = {"min": np.minimum, "max": np.maximum, "product": np.multiply}.get(operation, np.add)
    for ordered in (arrays, arrays[::-1]):
        got = ordered[0]
        for array in ordered[1:]:
            got = combine(got, array)
        if operation == "average":
            got = got * got.dtype.type(1 / size)
        assert mismatch(got, expected) == ""


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("operation", reference.REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_lost_or_repeated_contribution_is_not_tolerated(
    operation: str, dtype: str, size: int
) -> None:
    arrays = inputs(size, 5000, dtype, operation)
    expected = reference.reduced(operation, arrays)
    for wrong in (arrays[:-1], [*arrays[:-1], arrays[0]]):
        got = reference.reduced(operation, wrong).values.astype(dtype)
        assert mismatch(got, expected) != ""


def test_average_of_integers_may_be_truncated_but_not_more() -> None:
    arrays = inputs(2, 1000, "int64", "average")
    arrays[0][:2], arrays[1][:2] = (1, 4), (2, 4)
    expected = reference.reduced("average", arrays)
    got = np.trunc((arrays[0] + arrays[1]) / 2).astype("int64")
    assert list(got[:2]) == [1, 4]
    assert mismatch(got, expected) == ""
    for off in (-1, 1):
        wrong = got.copy()
        wrong[1] += off
        assert mismatch(wrong, expected) != ""


def test_float64_detour_through_float32_is_not_tolerated() -> None:
    arrays = inputs(2, 100, "float64")
    assert (arrays[0] != arrays[0].astype("float32")).all()
    got = (arrays[0].astype("float32") + arrays[1].astype("float32")).astype("float64")
    assert mismatch(got, reference.reduced("sum", arrays)) != ""


def test_mismatch_names_the_first_wrong_element() -> None:
    expected = np.arange(6, dtype="float32").reshape(2, 3)
    got = expected + np.array([[0, 0, 0], [0.25, 0, 0.5]], "float32")
    assert mismatch(got, Expected(expected, "float32", 0.1)) == (
        "expected 3.0, got 3.25 at element 3"
        " (max difference 0.5, tolerance 0.1, 2 of 6 elements differ)"
    )


NAN, EMPTY, ZEROS = np.array([0.0, np.nan]), np.zeros((0, 5)), np.zeros((2, 3))


@pytest.mark.parametrize(
    ("got", "expected", "wrong"),
    [
        (NAN, Expected(np.zeros(2), "float64", 0.0), "got nan at element 1"),
        (NAN, Expected(np.zeros(2), "float64", 1.0), "got nan at element 1"),
        (NAN, Expected(np.zeros(2), "float64", np.full(2, 1.0)), "got nan at element 1"),
        (ZEROS.T, reference.exactly(ZEROS), "shape (2, 3), got (3, 2)"),
        (ZEROS, Expected(ZEROS, "float32"), "type float32, got float64"),
        (EMPTY, reference.exactly(np.zeros((1, 5))), "shape"),
        (EMPTY, reference.exactly(EMPTY), ""),
    ],
)
def test_nan_and_another_shape_or_type_are_never_right(got, expected, wrong) -> None:
    found = mismatch(got, expected)
    assert wrong in found and bool(found) == bool(wrong)
