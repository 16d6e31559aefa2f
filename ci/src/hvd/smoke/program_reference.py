"""Inputs that every rank can compute for all ranks, and the results NumPy says they have.

The data depends on a key, the rank and nothing else, so no rank has to trust another one,
nor Horovod, for what the others contributed.
"""

import zlib
from typing import List, Optional, Sequence, Tuple, Union

import numpy as np

Tolerance = Union[float, np.ndarray]

#: Reductions of ``hvd.allreduce``, by the names of its constants in lower case.
REDUCTIONS = ("sum", "average", "min", "max", "product")

#: Largest magnitude of integers in some reductions: 3**n is then the largest product of n
#: ranks; and Horovod scales the sum for an average in float64, which has 53 bits.
LIMITS = {"product": 3, "average": 2**40}


def inputs(
    key: str, size: int, shape: Sequence[int], dtype: str, limit: Optional[int] = None
) -> List[np.ndarray]:
    """What each of ``size`` ranks contributes to the operation that is named ``key``.

    Floating-point values have magnitudes in [0.5, 1.5) and random signs: sums cancel, products
    of many ranks neither overflow nor vanish in float16.

    Args:
        limit: largest magnitude of integers, such as one of `LIMITS`; by default, and at
            most, the largest whose sum over all ranks cannot overflow, so that a detour
            through a floating-point type shows.
    """
    return [_input(key, rank, size, shape, np.dtype(dtype), limit) for rank in range(size)]


def ragged_inputs(key: str, shapes: Sequence[Sequence[int]], dtype: str) -> List[np.ndarray]:
    """`inputs` where each rank has a shape of its own."""
    return [
        _input(key, rank, len(shapes), shape, np.dtype(dtype), None)
        for rank, shape in enumerate(shapes)
    ]


def _input(
    key: str, rank: int, size: int, shape: Sequence[int], dtype: np.dtype, limit: Optional[int]
) -> np.ndarray:
    generator = np.random.default_rng([zlib.crc32(key.encode()), rank])
    if dtype.kind == "f":
        # float64 with all its bits, so that a detour through float32 shows.
        drawn = np.float64 if dtype.itemsize > 4 else np.float32
        values = 2 * generator.random(shape, dtype=drawn) - 1
        values += np.copysign(drawn(0.5), values)
        return values.astype(dtype, copy=False)
    largest = np.iinfo(dtype).max // size
    limit = min(limit, largest) if limit else largest
    values = generator.integers(-limit, limit, shape, dtype=dtype, endpoint=True)
    values[values == 0] = 1  # a factor of zero would hide the others in a product
    return values


def reduced(operation: str, arrays: Sequence[np.ndarray]) -> Tuple[np.ndarray, Tolerance]:
    """The element-wise reduction of ``arrays`` and how far a right result may be from it.

    Every addition or multiplication in the element type rounds, by at most half an ``eps``
    relative to the partial result if to nearest and by one ``eps`` if truncated.  Partial sums
    never exceed the sum of the magnitudes S, partial products never the product of magnitudes
    P up to rounding.  n ranks need n - 1 such steps and averaging one more, in whatever order
    the library chooses: n * eps * S and n * eps * P bound the error, to first order.

    Minimum and maximum round nothing, and neither do integers; only the average of integers,
    which Horovod scales in float64 and truncates, may be a fraction (n - 1) / n off.
    """
    n = len(arrays)
    if operation in ("min", "max"):
        pick = np.minimum if operation == "min" else np.maximum
        return pick.reduce(arrays), 0.0
    exact = arrays[0].dtype.kind == "i"
    wide = arrays[0].dtype if exact else np.dtype(np.float64)
    combine = np.multiply if operation == "product" else np.add
    result = arrays[0].astype(wide)
    bound = np.abs(result)
    for array in arrays[1:]:
        combine(result, array, out=result)
        combine(bound, np.abs(array), out=bound)
    if exact and operation == "average":
        return result / n, (n - 1) / n + bound * np.finfo(np.float64).eps
    if exact:
        return result, 0.0
    tolerance = bound * (n * float(np.finfo(arrays[0].dtype).eps))
    if operation == "average":
        return result / n, tolerance / n
    return result, tolerance


def mismatch(got: np.ndarray, expected: np.ndarray, dtype: str, tolerance: Tolerance = 0.0) -> str:
    """Say how ``got`` differs from ``expected`` by more than ``tolerance``; "" if it does not.

    Args:
        dtype: the element type that ``got`` must have; ``expected`` may be wider.
    """
    if str(got.dtype) != dtype:
        return f"expected element type {dtype}, got {got.dtype}"
    if got.shape != expected.shape:
        return f"expected shape {expected.shape}, got {got.shape}"
    if np.ndim(tolerance) == 0 and tolerance == 0:
        wrong = got != expected
    else:
        # Not `abs(got - expected) > tolerance`: that is false for NaN.
        wrong = ~(np.abs(got - expected) <= tolerance)
    if not wrong.any():
        return ""
    first = int(np.argmax(wrong))
    allowed = float(np.broadcast_to(tolerance, got.shape).flat[first])
    difference = np.abs(got[wrong].astype(np.float64) - expected[wrong].astype(np.float64))
    return (
        f"expected {expected.flat[first]}, got {got.flat[first]} at element {first}"
        f" (max difference {difference.max():.6g}, tolerance {allowed:.3g},"
        f" {difference.size} of {got.size} elements differ)"
    )


def ragged_rows(rank: int) -> int:
    """Rows that ``rank`` contributes to a ragged allgather: none, two, four, ..."""
    return 2 * rank


def alltoall_splits(rank: int, size: int) -> List[int]:
    """Rows that ``rank`` sends to each rank: uneven, different per pair, some of them none."""
    return [(rank + 2 * peer) % (size + 1) for peer in range(size)]


def scattered_rows(rows: int, size: int) -> List[slice]:
    """Rows that each rank keeps of a reducescatter: the first ``rows % size`` get one more."""
    base, extra = divmod(rows, size)
    starts = [rank * base + min(rank, extra) for rank in range(size + 1)]
    return [slice(begin, end) for begin, end in zip(starts, starts[1:])]
