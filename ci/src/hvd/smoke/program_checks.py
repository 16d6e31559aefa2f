"""The collective operations, checked against NumPy; the same for every framework.

What differs between frameworks is in a module for each (see ``program_session``).  Every rank
runs the same list of operations in the same order, so the number of operations that a rank has
started tells how far it got.
"""

import time
from typing import Any, List, Sequence, Tuple

import numpy as np
import program_reference as reference
import program_training
from program_session import Session

SIZES = (1, 3, 1000, 2**16 + 1)
QUICK_SIZES = (1, 1000)
#: Elements of the large float32 sums: one past a power of two, and 64 MiB.
LARGE_SIZES = (2**20 + 1, 2**24)
#: What Horovod's operations over oneCCL do not have, in its own words.
WITHOUT_ONECCL = (
    ("every operation", "float16", "Type float16 is not supported in CCL"),
    ("process sets", "every type", "Process sets are not supported yet with oneCCL operations"),
    ("reducescatter", "every type", "Reducescatter is not supported yet with oneCCL operations"),
)


def run(session: Session) -> None:
    """Run every check but `every_reducescatter`, in an order that is the same on all ranks."""
    for operation, dtype, reason in session.framework.LEFT_OUT:
        session.leave_out(operation, dtype, reason)
    if session.over_oneccl:
        for operation, dtype, reason in WITHOUT_ONECCL:
            session.leave_out(operation, dtype, reason)
    every_allreduce(session)
    fused_allreduce(session)
    if not session.lacks("grouped_allreduce", "grouped allreduce"):
        grouped_allreduce(session)
    without_alltoall = session.lacks("alltoall", "alltoall")
    for dtype in session.dtypes:
        ragged_allgather(session, dtype)
        for root in range(session.size):
            broadcast(session, root, dtype)
        if not without_alltoall:
            uneven_alltoall(session, dtype)
    if not session.over_oneccl and not session.lacks("add_process_set", "process sets"):
        process_sets(session)
    objects(session)
    if not session.lacks("barrier", "barrier"):
        barrier(session)
    if not session.lacks("join", "join"):
        join(session)
    program_training.run(session)


def every_allreduce(session: Session) -> None:
    """Every reduction of every element type at several sizes; large sums in float32."""
    omitted = set()
    for operation in reference.REDUCTIONS:
        if operation not in ("sum", "average"):
            if session.lacks(operation.capitalize(), f"allreduce {operation}"):
                omitted.update((operation, dtype) for dtype in session.dtypes)
    # https://github.com/horovod/horovod/issues/2054
    omitted.update(("average", dtype) for dtype in divided_by_framework(session, "allreduce", 20))
    for dtype in session.dtypes:
        for operation in reference.REDUCTIONS:
            for elements in QUICK_SIZES if session.quick else SIZES:
                if (operation, dtype) not in omitted:
                    allreduce(session, operation, dtype, elements)
    for elements in () if session.quick else LARGE_SIZES:
        allreduce(session, "sum", "float32", elements)


def allreduce(session: Session, operation: str, dtype: str, elements: int) -> None:
    name = f"allreduce {operation}"
    limit = reference.LIMITS.get(operation)
    arrays = reference.inputs(name, session.size, (elements,), dtype, limit)
    expected, tolerance = reference.reduced(operation, arrays)
    tensor = session.tensor(arrays[session.rank])
    session.recorder.check(
        name,
        lambda: session.allreduce(tensor, f"{name} {dtype} {elements}", operation),
        lambda result: session.expect(result, expected, dtype, tolerance),
        dtype,
        elements,
    )


def _several(session: Session, name: str) -> Tuple[dict, dict]:
    """Tensors of different lengths and types by name, and what their sums have to be."""
    tensors, expected = {}, {}
    for index in range(8 if session.quick else 64):
        dtype = ("float32", "float64", "int32")[index % 3]
        key = f"{name} {index}"
        arrays = reference.inputs(key, session.size, (1 + 37 * index,), dtype)
        tensors[key] = session.tensor(arrays[session.rank])
        expected[key] = (*reference.reduced("sum", arrays), dtype)
    return tensors, expected


def _expect_several(session: Session, results: dict, expected: dict) -> str:
    for key, (values, tolerance, dtype) in expected.items():
        wrong = session.expect(results[key], values, dtype, tolerance)
        if wrong:
            return f"tensor {key}: {wrong}"
    return ""


def fused_allreduce(session: Session) -> None:
    """Many tensors submitted before any is waited for: Horovod fuses those of one type."""
    name = "fused allreduce sum"
    tensors, expected = _several(session, name)
    session.recorder.check(
        name,
        lambda: session.framework.fused_allreduce(session, tensors),
        lambda results: _expect_several(session, results, expected),
        "mixed",
        sum(values.size for values, _, _ in expected.values()),
    )


def grouped_allreduce(session: Session) -> None:
    """Tensors that Horovod has to reduce together, or not at all."""
    name = "grouped allreduce sum"
    arrays = [
        reference.inputs(f"{name} {i}", session.size, (2 + 5 * i, 3), "float32") for i in range(5)
    ]
    expected = [reference.reduced("sum", each) for each in arrays]
    tensors = [session.tensor(each[session.rank]) for each in arrays]

    def verify(results: Sequence[Any]) -> str:
        if len(results) != len(expected):
            return f"expected {len(expected)} tensors, got {len(results)}"
        wrong = [session.expect(r, e, "float32", t) for r, (e, t) in zip(results, expected)]
        return next((f"tensor {i}: {text}" for i, text in enumerate(wrong) if text), "")

    session.recorder.check(
        name,
        lambda: session.hvd.grouped_allreduce(tensors, **session.reduction("sum")),
        verify,
        "float32",
        sum(each[0].size for each in arrays),
    )


def ragged_allgather(session: Session, dtype: str) -> None:
    """A different number of rows from each rank, none from rank 0."""
    shapes = [(reference.ragged_rows(rank), 5) for rank in range(session.size)]
    arrays = reference.ragged_inputs("allgather", shapes, dtype)
    tensor = session.tensor(arrays[session.rank])
    session.recorder.check(
        "allgather ragged",
        lambda: session.hvd.allgather(tensor, name=f"allgather {dtype}"),
        lambda result: session.expect(result, np.concatenate(arrays), dtype),
        dtype,
        arrays[session.rank].size,
    )


def broadcast(session: Session, root: int, dtype: str) -> None:
    name = f"broadcast from rank {root}"
    arrays = reference.inputs(name, session.size, (7, 11), dtype)
    tensor = session.tensor(arrays[session.rank])
    session.recorder.check(
        name,
        lambda: session.hvd.broadcast(tensor, root, name=f"{name} {dtype}"),
        lambda result: session.expect(result, arrays[root], dtype),
        dtype,
        arrays[root].size,
    )


def uneven_alltoall(session: Session, dtype: str) -> None:
    """Uneven splits, with pairs that exchange nothing."""
    everyone = range(session.size)
    splits = [reference.alltoall_splits(rank, session.size) for rank in everyone]
    sent = reference.ragged_inputs("alltoall", [(sum(rows), 3) for rows in splits], dtype)
    parts = [np.split(sent[rank], np.cumsum(splits[rank])[:-1]) for rank in everyone]
    expected = np.concatenate([parts[rank][session.rank] for rank in everyone])
    received = np.array([splits[rank][session.rank] for rank in everyone], np.int32)
    tensor = session.tensor(sent[session.rank])
    counts = session.tensor(np.array(splits[session.rank], np.int32))

    def verify(result: Any) -> str:
        # before 0.22 without the rows that came from each rank
        values, rows = result if isinstance(result, (tuple, list)) else (result, None)
        wrong = "" if rows is None else session.expect(rows, received, "int32")
        return f"received splits: {wrong}" if wrong else session.expect(values, expected, dtype)

    session.recorder.check(
        "alltoall uneven",
        lambda: session.hvd.alltoall(tensor, counts, name=f"alltoall {dtype}"),
        verify,
        dtype,
        sent[session.rank].size,
    )


def every_reducescatter(session: Session) -> None:
    """Sum and average of every element type.

    With Gloo in Horovod 0.28.1, an allreduce of 256 KiB or more takes ten times as long, or
    worse, once the process has done a reducescatter: these come after the bandwidth.
    """
    if session.over_oneccl or session.lacks("reducescatter", "reducescatter"):
        return
    # https://github.com/horovod/horovod/pull/3815
    without_average = divided_by_framework(session, "reducescatter", 27)
    for dtype in session.dtypes:
        uneven_reducescatter(session, "sum", dtype)
        if dtype not in without_average:
            uneven_reducescatter(session, "average", dtype)


def divided_by_framework(session: Session, function: str, minor: int) -> List[str]:
    """Integers, where Horovod is older than 0.``minor``: their average is then left out.

    The framework divided their sum, into an integer or a floating-point number.
    """
    if session.version >= (0, minor):
        return []
    integers = [dtype for dtype in session.dtypes if np.dtype(dtype).kind == "i"]
    reason = f"before Horovod 0.{minor} the framework divides, each in its own way"
    session.leave_out(f"{function} average", ", ".join(integers), reason)
    return integers


def uneven_reducescatter(session: Session, operation: str, dtype: str) -> None:
    """A number of rows that the ranks cannot share evenly."""
    name = f"reducescatter {operation}"
    rows = 3 * session.size - 1
    mine = reference.scattered_rows(rows, session.size)[session.rank]
    limit = reference.LIMITS.get(operation)
    arrays = reference.inputs(name, session.size, (rows, 5), dtype, limit)
    expected, tolerance = reference.reduced(operation, [array[mine] for array in arrays])
    tensor = session.tensor(arrays[session.rank])
    session.recorder.check(
        name,
        lambda: session.hvd.reducescatter(
            tensor, name=f"{name} {dtype}", **session.reduction(operation)
        ),
        lambda result: session.expect(result, expected, dtype, tolerance),
        dtype,
        rows * 5,
    )


def process_sets(session: Session) -> None:
    """A set for each rank, in which a sum is the rank's own data, and the set of all ranks."""
    everyone = list(range(session.size))
    # The set of all ranks exists from the start; Horovod refuses to add it again.
    all_ranks = session.hvd.global_process_set
    sets = [session.hvd.add_process_set([r]) for r in everyone] if len(everyone) > 1 else []
    process_set(session, "own rank", sets[session.rank] if sets else all_ranks, [session.rank])
    process_set(session, "all ranks", all_ranks, everyone)


def process_set(session: Session, label: str, group: Any, members: List[int]) -> None:
    """A sum within ``group``; called by its members only."""
    name = f"allreduce sum in process set of {label}"
    arrays = reference.inputs(name, session.size, (100,), "float32")
    expected, tolerance = reference.reduced("sum", [arrays[rank] for rank in members])
    tensor = session.tensor(arrays[session.rank])

    def verify(result: Any) -> str:
        got = (group.size(), group.rank())
        wanted = (len(members), members.index(session.rank))
        if got != wanted:
            return f"expected size and rank in the set {wanted}, got {got}"
        return session.expect(result, expected, "float32", tolerance)

    session.recorder.check(
        name,
        lambda: session.allreduce(tensor, name, "sum", process_set=group),
        verify,
        "float32",
        100,
    )


def objects(session: Session) -> None:
    """Pickled Python objects, of a different length on each rank."""

    def made_by(rank: int) -> dict:
        return {"rank": rank, "text": "x" * (100 * rank + 1), "nested": [rank, (None, 1.5)]}

    def verify(got: Any, expected: Any) -> str:
        return "" if got == expected else f"expected {expected!r}, got {got!r}"

    root, mine = session.size - 1, made_by(session.rank)
    if not session.lacks("broadcast_object", "broadcast_object"):
        session.recorder.check(
            "broadcast_object",
            lambda: session.hvd.broadcast_object(mine, root, name="broadcast_object"),
            lambda got: verify(got, made_by(root)),
        )
    if not session.lacks("allgather_object", "allgather_object"):
        session.recorder.check(
            "allgather_object",
            lambda: session.hvd.allgather_object(mine, name="allgather_object"),
            lambda got: verify(got, [made_by(rank) for rank in range(session.size)]),
        )


def barrier(session: Session) -> None:
    """No rank leaves before the last one, which comes late, has entered.

    The times are of monotonic clocks, which say nothing of each other on two hosts.
    """
    several = session.hvd.local_size() < session.size
    if several:
        session.leave_out("order of a barrier", "every type", "the ranks are on several hosts")

    def call() -> Tuple[float, float]:
        time.sleep(0.1 * session.rank / session.size)
        entered = time.monotonic()
        session.hvd.barrier()
        return entered, time.monotonic()

    def verify(times: Tuple[float, float]) -> str:
        mine = session.tensor(np.array([times]))
        entered, left = session.array(session.hvd.allgather(mine, name="barrier times")).T
        early = entered.max() - left.min()
        return f"a rank left {early:.6f} s before the last one entered" if early > 0 else ""

    session.recorder.check("barrier", call, None if several else verify)


def join(session: Session) -> None:
    """Uneven numbers of batches: a rank that has joined contributes zeros to the others."""
    batches = [2 + rank for rank in range(session.size)]
    arrays = [
        reference.inputs(f"join {batch}", session.size, (50,), "float32")
        for batch in range(max(batches))
    ]
    tensors = [session.tensor(each[session.rank]) for each in arrays]

    def call() -> Tuple[List[Any], Any]:
        sums = [
            session.allreduce(tensors[batch], f"join {batch}", "sum")
            for batch in range(batches[session.rank])
        ]
        return sums, session.hvd.join()

    def verify(result: Tuple[List[Any], Any]) -> str:
        sums, last = result
        for batch, got in enumerate(sums):
            present = [a for rank, a in enumerate(arrays[batch]) if batch < batches[rank]]
            expected, tolerance = reference.reduced("sum", present)
            wrong = session.expect(got, expected, "float32", tolerance)
            if wrong:
                return f"batch {batch}: {wrong}"
        # The rank with most batches cannot finish them before all others have joined.
        longest = session.size - 1
        if last is None or int(last) == longest:  # TensorFlow was not told before 0.23
            return ""
        return f"expected rank {longest} to join last, got {int(last)}"

    session.recorder.check("join after uneven batches", call, verify, "float32", 50)
