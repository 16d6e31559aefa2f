"""Inputs that every rank can compute for all ranks, and the results that NumPy computes from them.

The data depends on a key, the rank and nothing else, so no rank has to trust another one,
nor Horovod, for what the others contributed.  ``bfloat16``, which NumPy does not have, stands for
arrays of float32 whose last 16 bits are zero.
"""

import functools
import zlib
from typing import Any, List, NamedTuple, Sequence

import numpy as np

#: Reductions of ``hvd.allreduce``, by the names of its constants in lower case.
REDUCTIONS = {
    "sum": np.add,
    "average": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "product": np.multiply,
}
#: Largest magnitude of integers in some reductions: 3**n is then the largest product of n
#: ranks; and Horovod scales the sum for an average in float64, which has 53 bits.
LIMITS = {"product": 3, "average": 2**40}


class Expected(NamedTuple):
    """The right result of an operation; ``values`` may be of a wider type than its ``dtype``.

    ``tolerance`` is the largest absolute error: one for all, or an array of ``values``' shape.
    """

    values: np.ndarray
    dtype: str
    tolerance: Any = 0.0


def exactly(values: np.ndarray) -> Expected:
    """Return ``values`` as the only right result."""
    return Expected(values, str(values.dtype))


def inputs(
    key: str, shapes: Sequence[Sequence[int]], dtype: str, operation: str = "sum"
) -> List[np.ndarray]:
    """Return what each rank contributes to the ``operation`` known as ``key``: one of each shape.

    Floating-point values have magnitudes in [0.5, 1.5) and random signs: sums cancel, products
    of many ranks neither overflow nor vanish in float16.  Integers use the range in which their
    sum does not overflow, or `LIMITS`, so that a detour through a floating-point type shows.
    """
    kind = np.dtype("float32" if dtype == "bfloat16" else dtype)
    # float64 with all its bits, so that a detour through float32 shows.
    drawn = np.float64 if kind.itemsize > 4 else np.float32
    arrays = []
    for rank, shape in enumerate(shapes):
        generator = np.random.default_rng([zlib.crc32(key.encode()), rank])
        if kind.kind == "f":
            values = 2 * generator.random(shape, dtype=drawn) - 1
            values += np.copysign(drawn(0.5), values)
        else:
            largest = np.iinfo(kind).max // len(shapes)
            largest = min(largest, LIMITS.get(operation, largest))
            values = generator.integers(-largest, largest, shape, dtype=kind, endpoint=True)
            values[values == 0] = 1  # a factor of zero would hide the others in a product
        values = values.astype(kind, copy=False)
        if dtype == "bfloat16":
            values = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        arrays.append(values)
    return arrays


def reduced(operation: str, arrays: Sequence[np.ndarray], dtype: str) -> Expected:
    """Return the element-wise reduction of ``arrays`` in the element type ``dtype``.

    Every addition or multiplication in the element type rounds by at most one ``eps`` relative to
    the partial result.  Partial sums never exceed the sum of the magnitudes S, partial products
    never the product of magnitudes P up to rounding.  n ranks need n - 1 such steps and averaging
    one more: n * eps * S and n * eps * P bound the error, to first order.

    Minimum and maximum round nothing, and neither do integers; only the average of integers,
    which Horovod scales in float64 and truncates, may be a fraction (n - 1) / n off.
    """
    n, kind = len(arrays), arrays[0].dtype
    integers, average = kind.kind == "i", operation == "average"
    wide, combine = kind if integers else np.dtype(np.float64), REDUCTIONS[operation]
    values = functools.reduce(combine, (array.astype(wide) for array in arrays))
    if operation in ("min", "max") or (integers and not average):
        return Expected(values, str(kind))
    bound = functools.reduce(combine, (np.abs(array, dtype=wide) for array in arrays))
    if integers:
        tolerance = (n - 1) / n + bound * np.finfo(np.float64).eps
    else:
        eps = float(np.finfo(kind).eps) * (2**16 if dtype == "bfloat16" else 1)
        tolerance = bound * n * eps / (n if average else 1)
    return Expected(values / n if average else values, str(kind), tolerance)


def mismatch(got: np.ndarray, expected: Expected) -> str:
    """Return how ``got`` differs from what is ``expected``, "" if it does not."""
    values, dtype, tolerance = expected
    if str(got.dtype) != dtype:
        return f"expected element type {dtype}, got {got.dtype}"
    if got.shape != values.shape:
        return f"expected shape {values.shape}, got {got.shape}"
    if np.ndim(tolerance) == 0 and tolerance == 0:
        wrong = got != values
    else:
        # Not `abs(got - values) > tolerance`: that is false for NaN.
        wrong = ~(np.abs(got - values) <= tolerance)
    if not wrong.any():
        return ""
    first = int(np.argmax(wrong))
    allowed = float(np.broadcast_to(tolerance, got.shape).flat[first])
    difference = np.abs(got[wrong].astype(np.float64) - values[wrong].astype(np.float64))
    return (
        f"expected {values.flat[first]}, got {got.flat[first]} at element {first}"
        f" (max difference {difference.max():.6g}, tolerance {allowed:.3g},"
        f" {difference.size} of {got.size} elements differ)"
    )
