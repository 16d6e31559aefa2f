"""What the ranks run: under old Pythons, on what data, and with which tolerance."""

from __future__ import annotations

import ast
import functools
import pathlib

import numpy as np
import pytest

from hvd.doctor import imports
from hvd.host import interpreter
from hvd.smoke import program
from hvd.smoke import program_reference as reference
from hvd.smoke.program_reference import Expected, mismatch

DIRECTORY = pathlib.Path(program.__file__).parent
PROGRAMS = [*sorted(DIRECTORY.glob("program*.py"))]
PROGRAMS += [pathlib.Path(each.__file__) for each in (imports, interpreter)]
#: What the standard library of Python 3.6 lacks.
LATER = {"dataclasses", "contextvars", "graphlib", "tomllib", "zoneinfo"}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_foreign_interpreters_can_read_it(path: pathlib.Path) -> None:
    """A Horovod of 2020 runs under the Python of its TensorFlow: 3.6 and later."""
    tree = ast.parse(path.read_text(), feature_version=(3, 6))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
        # generic types of 3.9 are no matter of syntax: they fail at run time
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            assert node.value.id not in ("list", "dict", "tuple", "set"), node.lineno
    assert not imported & LATER
    assert "__future__" not in imported  # annotations are of 3.7


FLOATS, INTEGERS = ("float16", "float32", "float64"), ("int32", "int64")
COMBINE = {"min": np.minimum, "max": np.maximum, "product": np.multiply}


def drawn(size: int, dtype: str, operation: str = "sum", key: str = "key") -> list:
    return reference.inputs(key, [(5000,)] * size, dtype, operation)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bfloat16"])
def test_inputs_depend_on_key_and_rank_only(dtype: str) -> None:
    two, three = drawn(2, dtype, "product"), drawn(3, dtype, "product")
    assert all((a == b).all() for a, b in zip(two, three))
    assert (two[0] != two[1]).any() and (two[0] != drawn(2, dtype, "product", "x")[0]).any()
    assert all(array.all() for array in two)  # no factor hides the others


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("operation", reference.REDUCTIONS)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_any_order_of_rounding_is_right_and_a_lost_contribution_is_not(
    operation: str, dtype: str, size: int
) -> None:
    arrays = drawn(size, dtype, operation)
    expected = reference.reduced(operation, arrays, dtype)
    for ordered in (arrays, arrays[::-1]):
        got = functools.reduce(COMBINE.get(operation, np.add), ordered)
        if operation == "average":
            scale = np.dtype(dtype if dtype in FLOATS else "float64").type(1 / size)
            got = (got * scale).astype(dtype)
        assert mismatch(got, expected) == ""
    if size < 7:
        for wrong in (arrays[:-1], [*arrays[:-1], arrays[0]]):
            lost = reference.reduced(operation, wrong, dtype).values.astype(dtype)
            assert mismatch(lost, expected) != ""


def test_all_bits_are_used_and_nothing_overflows() -> None:
    for size in (2, 3, 64):
        arrays = drawn(size, "int64")
        exact = sum(array.astype(object) for array in arrays)
        assert (reference.reduced("sum", arrays, "int64").values == exact).all()
        assert max(abs(arrays[0])) > 2**53  # beyond what float64 could carry
    arrays = drawn(2, "float64")
    detour = (arrays[0].astype("float32") + arrays[1].astype("float32")).astype("float64")
    assert mismatch(detour, reference.reduced("sum", arrays, "float64")) != ""


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_one_ulp_is_seen_where_nothing_is_rounded(dtype: str) -> None:
    arrays = drawn(2, dtype)
    exact = [reference.exactly(arrays[0]), reference.reduced("max", arrays, dtype)]
    exact += [reference.reduced("sum", arrays, dtype)] * (dtype in INTEGERS)
    for expected in exact:
        wrong = expected.values.astype(dtype)
        wrong[7] = wrong[7] + 1 if dtype in INTEGERS else np.nextafter(wrong[7], np.inf)
        assert "at element 7" in mismatch(wrong, expected)
        assert mismatch(expected.values.astype(dtype), expected) == ""


NAN, EMPTY, ZEROS = np.array([0.0, np.nan]), np.zeros((0, 5)), np.zeros((2, 3))
HALF = np.array([[0, 0, 0], [0.25, 0, 0.5]])


@pytest.mark.parametrize(
    ("got", "expected", "wrong"),
    [
        *((NAN, Expected(np.zeros(2), "float64", each), "got nan at element 1")
          for each in (0.0, 1.0, np.full(2, 1.0))),
        (HALF, Expected(ZEROS, "float64", 0.1), "got 0.25 at element 3 (max difference 0.5"),
        (ZEROS.T, reference.exactly(ZEROS), "shape (2, 3), got (3, 2)"),
        (ZEROS, Expected(ZEROS, "float32"), "type float32, got float64"),
        (EMPTY, reference.exactly(np.zeros((1, 5))), "shape"),
        (EMPTY, reference.exactly(EMPTY), ""),
    ],
)  # fmt: skip
def test_nan_and_another_shape_or_type_are_never_right(got, expected, wrong) -> None:
    found = mismatch(got, expected)
    assert wrong in found and bool(found) == bool(wrong)
