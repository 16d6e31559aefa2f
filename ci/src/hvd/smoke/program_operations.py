"""The collective operations, checked against NumPy; the same for every framework.

Every rank runs the same list of operations in the same order, so the number of operations that
a rank has started tells how far it got.
"""

import functools
import importlib
import itertools
import statistics
import time
import timeit
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import program_reference as reference
from program_reference import exactly, inputs, reduced
from program_session import Session, training

SIZES = (1, 3, 1000, 2**16 + 1)
QUICK_SIZES = (1, 1000)
#: Elements of the large float32 sums: one past a power of two, and 64 MiB.
LARGE_SIZES = (2**20 + 1, 2**24)
#: Bytes of the messages whose bandwidth is measured: from 4 B to 64 MiB in steps of 16.
BYTES = tuple(4 * 16**power for power in range(7))
QUICK_BYTES = BYTES[:5:2]


def run(session: Session) -> None:
    """Run every check that this Horovod has the function for, and record the others."""
    for operation, function, check in CHECKS:
        if not session.lacks(operation, function):
            check(session)


def allreduce(session: Session) -> None:
    """Every reduction of every element type at several sizes; large sums in float32."""
    for operation in reference.REDUCTIONS:
        constant = "allreduce" if operation in ("sum", "average") else operation.capitalize()
        if session.lacks(f"allreduce {operation}", constant):
            continue
        # https://github.com/horovod/horovod/issues/2054
        dtypes = session.reducible(operation, (0, 20))
        cases = [(each, dtypes) for each in (QUICK_SIZES if session.quick else SIZES)]
        if operation == "sum" and not session.quick:
            cases += [(each, ["float32"]) for each in LARGE_SIZES]
        call = functools.partial(session.allreduce, operation=operation)
        expect = functools.partial(reduced, operation)
        for elements, types in cases:
            shapes = [(elements,)] * session.size
            session.collective(f"allreduce {operation}", call, expect, shapes, types, operation)
    if "bfloat16" in session.dtypes:  # a sum of float32 travels as that, and is rounded as that
        narrow = session.hvd.Compression.bf16
        session.collective(
            "allreduce sum compressed to bfloat16",
            functools.partial(session.allreduce, operation="sum", compression=narrow),
            lambda arrays, _: reduced("sum", arrays, "bfloat16"),
            [(333,)] * session.size,
            ["float32"],
        )


def several(session: Session) -> None:
    """Sums of tensors that Horovod fuses, and of such as it has to reduce together."""

    def grouped(tensors: Dict[str, Any]) -> Any:
        return session.hvd.grouped_allreduce([*tensors.values()], **session.reduction("sum"))

    count = 8 if session.quick else 64
    cases = [("fused", session.fused_allreduce, ["float32", "float64", "int32"], count)]
    if not session.lacks("grouped allreduce", "grouped_allreduce"):
        cases.append(("grouped", grouped, ["float32"], 5))
    for kind, call, dtypes, count in cases:
        tensors, expected = {}, []
        for i, dtype in zip(range(count), itertools.cycle(dtypes)):
            key = f"{kind} allreduce sum {i}"
            arrays = inputs(key, [(1 + 37 * i,)] * session.size, dtype)
            tensors[key] = session.tensor(arrays[session.rank])
            expected.append(reduced("sum", arrays, dtype))
        elements = sum(each.values.size for each in expected)
        start = functools.partial(call, tensors)
        session.check(f"{kind} allreduce sum", start, expected, ", ".join(dtypes), elements)


def allgather_and_broadcast(session: Session) -> None:
    """A different number of rows from each rank, none from rank 0; and from each rank to all."""
    shapes = [(2 * rank, 5) for rank in range(session.size)]
    together = lambda arrays, _: exactly(np.concatenate(arrays))  # noqa: E731
    session.collective("allgather ragged", session.hvd.allgather, together, shapes)
    for root in range(session.size):
        call = functools.partial(session.hvd.broadcast, root_rank=root)
        expect = lambda arrays, _, root=root: exactly(arrays[root])  # noqa: E731
        shapes = [(7, 11)] * session.size
        session.collective(f"broadcast from rank {root}", call, expect, shapes)


def alltoall(session: Session) -> None:
    """Uneven splits, different per pair, with pairs that exchange nothing."""
    everyone = np.arange(session.size)
    # rows that the rank of the row sends to the rank of the column
    splits = ((everyone[:, None] + 2 * everyone) % (session.size + 1)).astype(np.int32)
    counts, received = session.tensor(splits[session.rank]), splits[:, session.rank]

    def call(tensor: Any, name: str) -> Any:
        result = session.hvd.alltoall(tensor, counts, name=name)
        # before 0.22 without the rows that came from each rank
        return result if isinstance(result, (tuple, list)) else (result, session.tensor(received))

    def expect(arrays: List[np.ndarray], _: str) -> List[reference.Expected]:
        ends = np.cumsum(splits, axis=1)[:, :-1]
        parts = [np.split(array, end)[session.rank] for array, end in zip(arrays, ends)]
        return [exactly(np.concatenate(parts)), exactly(received)]

    shapes = [(rows, 3) for rows in splits.sum(axis=1)]
    session.collective("alltoall uneven", call, expect, shapes)


def process_sets(session: Session) -> None:
    """A set for each rank, in which a sum is the rank's own data, and the set of all ranks."""
    everyone = list(range(session.size))
    # The set of all ranks exists from the start; Horovod refuses to add it again.
    all_ranks = session.hvd.global_process_set
    sets = [session.hvd.add_process_set([r]) for r in everyone] if session.size > 1 else []
    own = sets[session.rank] if sets else all_ranks
    for label, group, members in (
        ("own rank", own, [session.rank]),
        ("all ranks", all_ranks, everyone),
    ):

        def call(tensor: Any, name: str, group: Any = group) -> List[Any]:
            result = session.allreduce(tensor, name, "sum", process_set=group)
            return [group.size(), group.rank(), result]

        def expect(arrays: Any, dtype: str, members: List[int] = members) -> List[Any]:
            total = reduced("sum", [arrays[rank] for rank in members], dtype)
            return [len(members), members.index(session.rank), total]

        name = f"allreduce sum in process set of {label}"
        session.collective(name, call, expect, [(100,)] * session.size, ["float32"])


def objects(session: Session) -> None:
    """Python objects whose length depends on the rank, broadcast and gathered."""
    every = [{"text": "x" * (100 * r + 1), "in": [r, (1.5,)]} for r in range(session.size)]
    root = session.size - 1
    for name, options, expected in (
        ("broadcast_object", {"root_rank": root}, every[root]),
        ("allgather_object", {}, every),
    ):
        if not session.lacks(name, name):
            function, mine = getattr(session.hvd, name), every[session.rank]
            session.check(name, functools.partial(function, mine, name=name, **options), expected)


def barrier(session: Session) -> None:
    """No rank leaves before the last one, which comes late, has entered.

    The times are of monotonic clocks, which say nothing of each other on two hosts.
    """

    def call() -> Tuple[float, float]:
        time.sleep(0.1 * session.rank / session.size)
        entered = time.monotonic()
        session.hvd.barrier()
        return entered, time.monotonic()

    def verify(times: Tuple[float, float]) -> str:
        entered, left = session.gather(times, "barrier times").T
        early = entered.max() - left.min()
        return f"a rank left {early:.6f} s before the last one entered" if early > 0 else ""

    one_host = session.hvd.local_size() == session.size
    session.recorder.check("barrier", call, verify if one_host else None)


def join(session: Session) -> None:
    """Uneven numbers of batches: a rank that has joined contributes zeros to the others."""
    batches = [2 + rank for rank in range(session.size)]
    # The rank with most batches cannot finish them before all others have joined.
    longest = session.size - 1
    tensors, expected = [], []
    for batch in range(batches[session.rank]):
        arrays = inputs(f"join {batch}", [(50,)] * session.size, "float32")
        tensors.append(session.tensor(arrays[session.rank]))
        present = [array for array, count in zip(arrays, batches) if batch < count]
        expected.append(reduced("sum", present, "float32"))

    def call() -> List[Any]:
        sums = [session.allreduce(each, f"join {i}", "sum") for i, each in enumerate(tensors)]
        last = session.join()
        return [*sums, longest if last is None else int(last)]  # TensorFlow: None before 0.23

    session.check("join after uneven batches", call, [*expected, longest], "float32", 50)


def mpi4py(session: Session) -> None:
    """mpi4py, over the MPI that Horovod has initialised, is in the same world and can sum."""
    if not session.mpi4py:
        return

    def load() -> Any:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        return importlib.import_module("mpi4py.MPI")

    mpi = session.mpi = session.recorder.check("import of mpi4py", load)
    world, place = mpi.COMM_WORLD, [session.rank, session.size]
    session.check("mpi4py world", lambda: [world.Get_rank(), world.Get_size()], place)
    # Horovod's background thread is in MPI at the same time.
    session.check("mpi4py thread level", mpi.Query_thread, mpi.THREAD_MULTIPLE)
    result = np.empty(1000)

    def both(tensor: Any, name: str) -> List[Any]:
        world.Allreduce(session.array(tensor), result, op=mpi.SUM)
        return [session.tensor(result), session.allreduce(tensor, name, "sum")]

    twice = lambda arrays, dtype: [reduced("sum", arrays, dtype)] * 2  # noqa: E731
    session.collective(
        "mpi4py Allreduce sum", both, twice, [result.shape] * session.size, ["float64"]
    )


def bandwidth(session: Session) -> None:
    """Time sums of float32 by message size, of Horovod and, as a reference, of mpi4py.

    On a machine whose cores are shared the numbers say that an allreduce works at this size, not
    what a network can do.
    """
    for size in QUICK_BYTES if session.quick else BYTES:
        # zeros: a sum may be in place, over and over
        zeros = np.zeros(size // 4, np.float32)
        tensor = session.tensor(zeros)

        def by_horovod(tensor: Any = tensor, name: str = f"bandwidth {size}") -> None:
            session.allreduce_in_place(tensor, name)
            session.wait()

        def by_mpi4py(zeros: np.ndarray = zeros) -> None:
            session.mpi.COMM_WORLD.Allreduce(session.mpi.IN_PLACE, zeros, op=session.mpi.SUM)

        calls = [("horovod", by_horovod)] + [("mpi4py", by_mpi4py)] * bool(session.mpi)
        for method, call in calls:
            name = f"bandwidth of allreduce sum by {method}"
            time_it = functools.partial(median, session, call)
            seconds = session.recorder.check(name, time_it, None, "float32", size // 4)
            session.recorder.emit("bandwidth", method=method, bytes=size, seconds=seconds)


def median(session: Session, call: Callable[[], None]) -> float:
    """Return the median seconds of 3 to 20 calls in about 0.3 s; as many on every rank."""
    timer = timeit.Timer(call)
    repeats = min(20, max(3, int(0.3 / max(timer.repeat(2, number=1)))))
    repeats = int(session.gather([repeats], "repeats").min())
    return statistics.median(timer.repeat(repeats, number=1))


def reducescatter(session: Session) -> None:
    """Sum and average of every element type, with rows that the ranks cannot share evenly."""
    shapes = [(3 * session.size - 1, 5)] * session.size
    for operation in ("sum", "average"):

        def expect(arrays: Any, dtype: str, operation: str = operation) -> reference.Expected:
            parts = [np.array_split(array, session.size)[session.rank] for array in arrays]
            return reduced(operation, parts, dtype)

        call = functools.partial(session.hvd.reducescatter, **session.reduction(operation))
        # https://github.com/horovod/horovod/pull/3815
        dtypes = session.reducible(operation, (0, 27))
        name = f"reducescatter {operation}"
        session.collective(name, call, expect, shapes, dtypes, operation)


#: What is checked, the function of Horovod that it needs, and the check.
CHECKS = (
    ("allreduce", "allreduce", allreduce),
    ("fused allreduce", "allreduce", several),
    ("allgather", "allgather", allgather_and_broadcast),
    ("alltoall", "alltoall", alltoall),
    ("process sets", "add_process_set", process_sets),
    ("objects", "allreduce", objects),
    ("barrier", "barrier", barrier),
    ("join", "join", join),
    ("training", "allreduce", training),
    ("mpi4py", "allreduce", mpi4py),
    ("bandwidth", "allreduce", bandwidth),
    # With Gloo in Horovod 0.28.1, an allreduce of 256 KiB or more takes ten times as long, or
    # worse, once the process has done a reducescatter: it comes after the bandwidth.
    ("reducescatter", "reducescatter", reducescatter),
)
