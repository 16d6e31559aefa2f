"""The collective operations, checked against NumPy; the same for every framework.

Every rank runs the same list of operations in the same order, so the number of operations that
a rank has started tells how far it got.
"""

import functools
import time
from typing import Any, List, Tuple

import numpy as np
import program_bandwidth
import program_mpi4py
import program_reference as reference
import program_training
from program_reference import exactly
from program_session import Session

SIZES = (1, 3, 1000, 2**16 + 1)
QUICK_SIZES = (1, 1000)
#: Elements of the large float32 sums: one past a power of two, and 64 MiB.
LARGE_SIZES = (2**20 + 1, 2**24)


def run(session: Session) -> None:
    """Run every check that this Horovod has the function for, and record the others."""
    for row in session.left_out:
        session.leave_out(*row)
    left_out = {operation for operation, dtype, _ in session.left_out if dtype == "every type"}
    for operation, function, check in CHECKS:
        if operation not in left_out and not session.lacks(function, operation):
            check(session)


def allreduce(session: Session) -> None:
    """Every reduction of every element type at several sizes; large sums in float32."""
    reductions = [
        each
        for each in reference.REDUCTIONS
        if each in ("sum", "average") or not session.lacks(each.capitalize(), f"allreduce {each}")
    ]
    # https://github.com/horovod/horovod/issues/2054
    without_average = divided_by_framework(session, "allreduce", 20)
    cases = [
        (operation, dtype, elements)
        for dtype in session.dtypes
        for operation in reductions
        for elements in (QUICK_SIZES if session.quick else SIZES)
        if operation != "average" or dtype not in without_average
    ]
    if not session.quick:
        cases += [("sum", "float32", elements) for elements in LARGE_SIZES]
    for operation, dtype, elements in cases:
        name = f"allreduce {operation}"
        arrays = reference.inputs(name, [(elements,)] * session.size, dtype, operation)
        call = functools.partial(session.allreduce, operation=operation)
        session.check_tensor(name, arrays, call, reference.reduced(operation, arrays))


def divided_by_framework(session: Session, function: str, minor: int) -> List[str]:
    """Return the integers if Horovod is older than 0.``minor``; leave their average out then.

    The framework divided their sum, into an integer or a floating-point number.
    """
    if session.version >= (0, minor):
        return []
    integers = [dtype for dtype in session.dtypes if np.dtype(dtype).kind == "i"]
    reason = f"before Horovod 0.{minor} the framework divides, each in its own way"
    session.leave_out(f"{function} average", ", ".join(integers), reason)
    return integers


def fused_allreduce(session: Session) -> None:
    """Many tensors submitted before any is waited for: Horovod fuses those of one type."""
    name = "fused allreduce sum"
    dtypes = ["float32", "float64", "int32"]
    arrays = {
        f"{name} {i}": reference.inputs(
            f"{name} {i}", [(1 + 37 * i,)] * session.size, dtypes[i % len(dtypes)]
        )
        for i in range(8 if session.quick else 64)
    }
    tensors = {key: session.tensor(each[session.rank]) for key, each in arrays.items()}
    session.check(
        name,
        lambda: session.fused_allreduce(tensors),
        [reference.reduced("sum", each) for each in arrays.values()],
        "mixed",
        sum(each[0].size for each in arrays.values()),
    )


def grouped_allreduce(session: Session) -> None:
    """Tensors that Horovod has to reduce together, or not at all."""
    name = "grouped allreduce sum"
    arrays = [
        reference.inputs(f"{name} {i}", [(2 + 5 * i, 3)] * session.size, "float32")
        for i in range(5)
    ]
    tensors = [session.tensor(each[session.rank]) for each in arrays]
    session.check(
        name,
        lambda: session.hvd.grouped_allreduce(tensors, **session.reduction("sum")),
        [reference.reduced("sum", each) for each in arrays],
        "float32",
        sum(each[0].size for each in arrays),
    )


def allgather(session: Session) -> None:
    """A different number of rows from each rank, none from rank 0."""
    for dtype in session.dtypes:
        shapes = [(2 * rank, 5) for rank in range(session.size)]
        arrays = reference.inputs("allgather", shapes, dtype)
        expected = exactly(np.concatenate(arrays))
        session.check_tensor("allgather ragged", arrays, session.hvd.allgather, expected)


def broadcast(session: Session) -> None:
    """From each rank."""
    for dtype in session.dtypes:
        for root in range(session.size):
            operation = f"broadcast from rank {root}"
            arrays = reference.inputs(operation, [(7, 11)] * session.size, dtype)
            call = functools.partial(session.hvd.broadcast, root_rank=root)
            session.check_tensor(operation, arrays, call, exactly(arrays[root]))


def alltoall(session: Session) -> None:
    """Uneven splits, different per pair, with pairs that exchange nothing."""
    everyone = np.arange(session.size)
    # rows that the rank of the row sends to the rank of the column
    splits = ((everyone[:, None] + 2 * everyone) % (session.size + 1)).astype(np.int32)
    counts = session.tensor(splits[session.rank])
    received = splits[:, session.rank]

    def call(tensor: Any, name: str) -> Any:
        result = session.hvd.alltoall(tensor, counts, name=name)
        # before 0.22 without the rows that came from each rank
        return result if isinstance(result, (tuple, list)) else (result, session.tensor(received))

    for dtype in session.dtypes:
        sent = reference.inputs("alltoall", [(rows, 3) for rows in splits.sum(axis=1)], dtype)
        parts = [
            np.split(array, np.cumsum(rows)[:-1])[session.rank]
            for array, rows in zip(sent, splits)
        ]
        expected = [exactly(np.concatenate(parts)), exactly(received)]
        session.check_tensor("alltoall uneven", sent, call, expected)


def process_sets(session: Session) -> None:
    """A set for each rank, in which a sum is the rank's own data, and the set of all ranks."""
    everyone = list(range(session.size))
    # The set of all ranks exists from the start; Horovod refuses to add it again.
    all_ranks = session.hvd.global_process_set
    sets = [session.hvd.add_process_set([r]) for r in everyone] if len(everyone) > 1 else []
    own = sets[session.rank] if sets else all_ranks
    for label, group, members in (
        ("own rank", own, [session.rank]),
        ("all ranks", all_ranks, everyone),
    ):
        operation = f"allreduce sum in process set of {label}"
        arrays = reference.inputs(operation, [(100,)] * session.size, "float32")

        def call(tensor: Any, name: str, group: Any = group) -> Tuple[Any, Any, Any]:
            result = session.allreduce(tensor, name, "sum", process_set=group)
            return group.size(), group.rank(), result

        total = reference.reduced("sum", [arrays[rank] for rank in members])
        expected = [len(members), members.index(session.rank), total]
        session.check_tensor(operation, arrays, call, expected)


def object_of(rank: int) -> dict:
    """Return a Python object of a length that depends on the rank."""
    return {"rank": rank, "text": "x" * (100 * rank + 1), "nested": [rank, (None, 1.5)]}


def broadcast_object(session: Session) -> None:
    root, mine = session.size - 1, object_of(session.rank)
    session.check(
        "broadcast_object",
        lambda: session.hvd.broadcast_object(mine, root, name="broadcast_object"),
        object_of(root),
    )


def allgather_object(session: Session) -> None:
    mine = object_of(session.rank)
    session.check(
        "allgather_object",
        lambda: session.hvd.allgather_object(mine, name="allgather_object"),
        [object_of(rank) for rank in range(session.size)],
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
        entered, left = session.gather(times, "barrier times").T
        early = entered.max() - left.min()
        return f"a rank left {early:.6f} s before the last one entered" if early > 0 else ""

    session.recorder.check("barrier", call, None if several else verify)


def join(session: Session) -> None:
    """Uneven numbers of batches: a rank that has joined contributes zeros to the others."""
    batches = [2 + rank for rank in range(session.size)]
    # The rank with most batches cannot finish them before all others have joined.
    longest = session.size - 1
    tensors, expected = [], []
    for batch in range(batches[session.rank]):
        arrays = reference.inputs(f"join {batch}", [(50,)] * session.size, "float32")
        tensors.append(session.tensor(arrays[session.rank]))
        present = [array for array, count in zip(arrays, batches) if batch < count]
        expected.append(reference.reduced("sum", present))

    def call() -> List[Any]:
        sums = [session.allreduce(each, f"join {i}", "sum") for i, each in enumerate(tensors)]
        last = session.hvd.join()
        return [*sums, longest if last is None else int(last)]  # TensorFlow: None before 0.23

    session.check("join after uneven batches", call, [*expected, longest], "float32", 50)


def reducescatter(session: Session) -> None:
    """Sum and average of every element type, with rows that the ranks cannot share evenly."""
    # https://github.com/horovod/horovod/pull/3815
    without_average = divided_by_framework(session, "reducescatter", 27)
    for dtype in session.dtypes:
        for operation in ("sum", "average"):
            if operation == "average" and dtype in without_average:
                continue
            name = f"reducescatter {operation}"
            shapes = [(3 * session.size - 1, 5)] * session.size
            arrays = reference.inputs(name, shapes, dtype, operation)
            mine = [np.array_split(array, session.size)[session.rank] for array in arrays]
            call = functools.partial(session.hvd.reducescatter, **session.reduction(operation))
            session.check_tensor(name, arrays, call, reference.reduced(operation, mine))


def bfloat16(session: Session) -> None:
    """The type that NumPy does not have: rounded, and compared, as float32."""
    if not hasattr(getattr(session.hvd, "Compression", None), "bf16"):
        session.leave_out("every operation", "bfloat16", "Horovod as released does not have it")
        return
    hvd = session.hvd

    def draw(operation: str, *shape: int) -> List[np.ndarray]:
        arrays = reference.inputs(f"bfloat16 {operation}", [shape] * session.size, "float32")
        return [session.array(session.wide(session.narrow(each))) for each in arrays]

    def rounding(expected: reference.Expected) -> reference.Expected:
        # it has 16 bits less than float32
        return expected._replace(tolerance=expected.tolerance * 2**16)

    def check(operation: str, arrays: List[np.ndarray], call: Any, expected: Any) -> None:
        tensor, size = session.narrow(arrays[session.rank]), arrays[0].size
        name = f"{operation} bfloat16 {size}"
        session.check(
            operation,
            lambda: session.wide(call(tensor, name=name)),
            expected,
            "bfloat16",
            size,
        )

    for elements in QUICK_SIZES if session.quick else SIZES:
        for each in reference.REDUCTIONS:
            name = f"allreduce {each}"
            arrays = draw(name, elements)
            call = functools.partial(session.allreduce, operation=each)
            check(name, arrays, call, rounding(reference.reduced(each, arrays)))
    arrays = draw("exchange", session.size, 5)
    root = session.size - 1
    call = functools.partial(hvd.broadcast, root_rank=root)
    check(f"broadcast from rank {root}", arrays, call, exactly(arrays[root]))
    check("allgather", arrays, hvd.allgather, exactly(np.concatenate(arrays)))
    columns = np.stack([each[session.rank] for each in arrays])
    check("alltoall", arrays, hvd.alltoall, exactly(columns))
    if ("reducescatter", "every type") not in {row[:2] for row in session.left_out}:
        mine = [each[session.rank : session.rank + 1] for each in arrays]
        call = functools.partial(hvd.reducescatter, **session.reduction("sum"))
        check("reducescatter sum", arrays, call, rounding(reference.reduced("sum", mine)))

    def compressed(tensor: Any, name: str) -> Any:
        return session.allreduce(tensor, name, "sum", compression=hvd.Compression.bf16)

    expected = rounding(reference.reduced("sum", arrays))
    session.check_tensor("allreduce sum compressed to bfloat16", arrays, compressed, expected)


#: What is checked, the function of Horovod that it needs, and the check.
CHECKS = (
    ("allreduce", "allreduce", allreduce),
    ("fused allreduce", "allreduce", fused_allreduce),
    ("grouped allreduce", "grouped_allreduce", grouped_allreduce),
    ("allgather", "allgather", allgather),
    ("broadcast", "broadcast", broadcast),
    ("alltoall", "alltoall", alltoall),
    ("process sets", "add_process_set", process_sets),
    ("broadcast_object", "broadcast_object", broadcast_object),
    ("allgather_object", "allgather_object", allgather_object),
    ("barrier", "barrier", barrier),
    ("join", "join", join),
    ("training", "allreduce", program_training.run),
    ("mpi4py", "allreduce", program_mpi4py.run),
    ("bandwidth", "allreduce", program_bandwidth.run),
    # With Gloo in Horovod 0.28.1, an allreduce of 256 KiB or more takes ten times as long, or
    # worse, once the process has done a reducescatter: it comes after the bandwidth.
    ("reducescatter", "reducescatter", reducescatter),
    ("bfloat16", "allreduce", bfloat16),
)
