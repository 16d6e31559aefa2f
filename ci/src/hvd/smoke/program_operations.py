"""The collective operations, checked against NumPy; the same for every framework.

Every rank runs the same list of operations in the same order, so the number of operations that
a rank has started tells how far it got.
"""

import functools
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
import program_bandwidth
import program_mpi4py
import program_reference as reference
import program_training
from program_reference import exactly, reduced
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
    # https://github.com/horovod/horovod/issues/2054
    without_average = divided_by_framework(session, "allreduce", 20)
    cases = [
        (operation, dtype, elements)
        for operation in reference.REDUCTIONS
        if operation in ("sum", "average")
        or not session.lacks(operation.capitalize(), f"allreduce {operation}")
        for dtype in session.dtypes
        if operation != "average" or dtype not in without_average
        for elements in (QUICK_SIZES if session.quick else SIZES)
    ]
    if not session.quick:
        cases += [("sum", "float32", elements) for elements in LARGE_SIZES]
    for operation, dtype, elements in cases:
        name = f"allreduce {operation}"
        arrays = session.draw(name, elements, dtype=dtype, operation=operation)
        call = functools.partial(session.allreduce, operation=operation)
        session.check_tensor(name, arrays, call, reduced(operation, arrays))


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


def several(
    session: Session,
    name: str,
    dtypes: Sequence[str],
    shapes: Sequence[Sequence[int]],
    call: Callable[[Dict[str, Any]], Any],
) -> None:
    """Check the sums of several tensors, each of the next of ``dtypes``, in one ``call``."""
    arrays = {
        f"{name} {i}": session.draw(f"{name} {i}", *shape, dtype=dtypes[i % len(dtypes)])
        for i, shape in enumerate(shapes)
    }
    tensors = {key: session.tensor(each[session.rank]) for key, each in arrays.items()}
    session.check(
        name,
        lambda: call(tensors),
        [reduced("sum", each) for each in arrays.values()],
        dtypes[0] if len(dtypes) == 1 else "mixed",
        sum(each[0].size for each in arrays.values()),
    )


def fused_allreduce(session: Session) -> None:
    """Many tensors submitted before any is waited for: Horovod fuses those of one type."""
    shapes = [(1 + 37 * i,) for i in range(8 if session.quick else 64)]
    dtypes = ["float32", "float64", "int32"]
    several(session, "fused allreduce sum", dtypes, shapes, session.fused_allreduce)


def grouped_allreduce(session: Session) -> None:
    """Tensors that Horovod has to reduce together, or not at all."""

    def call(tensors: Dict[str, Any]) -> Any:
        return session.hvd.grouped_allreduce([*tensors.values()], **session.reduction("sum"))

    shapes = [(2 + 5 * i, 3) for i in range(5)]
    several(session, "grouped allreduce sum", ["float32"], shapes, call)


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
            arrays = session.draw(operation, 7, 11, dtype=dtype)
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
        arrays = session.draw(operation, 100)

        def call(tensor: Any, name: str, group: Any = group) -> Tuple[Any, Any, Any]:
            result = session.allreduce(tensor, name, "sum", process_set=group)
            return group.size(), group.rank(), result

        total = reduced("sum", [arrays[rank] for rank in members])
        expected = [len(members), members.index(session.rank), total]
        session.check_tensor(operation, arrays, call, expected)


def object_of(rank: int) -> dict:
    """Return a Python object of a length that depends on the rank."""
    return {"rank": rank, "text": "x" * (100 * rank + 1), "nested": [rank, (None, 1.5)]}


def broadcast_object(session: Session) -> None:
    root, mine = session.size - 1, object_of(session.rank)
    name = "broadcast_object"
    call = functools.partial(session.hvd.broadcast_object, mine, root, name=name)
    session.check(name, call, object_of(root))


def allgather_object(session: Session) -> None:
    everyone = [object_of(rank) for rank in range(session.size)]
    name = "allgather_object"
    call = functools.partial(session.hvd.allgather_object, everyone[session.rank], name=name)
    session.check(name, call, everyone)


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
        arrays = session.draw(f"join {batch}", 50)
        tensors.append(session.tensor(arrays[session.rank]))
        present = [array for array, count in zip(arrays, batches) if batch < count]
        expected.append(reduced("sum", present))

    def call() -> List[Any]:
        sums = [session.allreduce(each, f"join {i}", "sum") for i, each in enumerate(tensors)]
        last = session.join()
        return [*sums, longest if last is None else int(last)]  # TensorFlow: None before 0.23

    session.check("join after uneven batches", call, [*expected, longest], "float32", 50)


def reducescatter(session: Session) -> None:
    """Sum and average of every element type, with rows that the ranks cannot share evenly."""
    # https://github.com/horovod/horovod/pull/3815
    without_average = divided_by_framework(session, "reducescatter", 27)
    for dtype in session.dtypes:
        for operation in ("sum",) if dtype in without_average else ("sum", "average"):
            name, rows = f"reducescatter {operation}", 3 * session.size - 1
            arrays = session.draw(name, rows, 5, dtype=dtype, operation=operation)
            mine = [np.array_split(array, session.size)[session.rank] for array in arrays]
            call = functools.partial(session.hvd.reducescatter, **session.reduction(operation))
            session.check_tensor(name, arrays, call, reduced(operation, mine))


def bfloat16(session: Session) -> None:
    """The type that NumPy does not have: rounded, and compared, as float32."""
    hvd = session.hvd
    if not hasattr(getattr(hvd, "Compression", None), "bf16"):
        session.leave_out("every operation", "bfloat16", "Horovod as released does not have it")
        return

    def draw(operation: str, *shape: int) -> List[np.ndarray]:
        arrays = session.draw(f"bfloat16 {operation}", *shape)
        return [session.array(session.wide(session.narrow(each))) for each in arrays]

    def rounded(operation: str, arrays: Sequence[np.ndarray]) -> reference.Expected:
        expected = reduced(operation, arrays)
        # it has 16 bits less than float32
        return expected._replace(tolerance=expected.tolerance * 2**16)

    check = functools.partial(session.check_tensor, narrow=True)
    for elements in QUICK_SIZES if session.quick else SIZES:
        for each in reference.REDUCTIONS:
            name = f"allreduce {each}"
            arrays = draw(name, elements)
            call = functools.partial(session.allreduce, operation=each)
            check(name, arrays, call, rounded(each, arrays))
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
        check("reducescatter sum", arrays, call, rounded("sum", mine))
    call = functools.partial(session.allreduce, operation="sum", compression=hvd.Compression.bf16)
    name = "allreduce sum compressed to bfloat16"
    session.check_tensor(name, arrays, call, rounded("sum", arrays))


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
