"""Bandwidth of a float32 sum allreduce by message size.

With S the bytes that each rank contributes, n the ranks and t the seconds of one allreduce:

* algorithm bandwidth is S / t;
* bus bandwidth is 2 (n - 1) / n * S / t: what each rank has to send, and to receive, in the
  best possible algorithm, so that it can be compared over n and with the link's bandwidth
  (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).

Both are in MB/s, 1 MB being 10**6 bytes.  t is the median over repeats on one rank, after
warm-up; the tool takes the slowest rank's.  The numbers of a machine whose cores are shared
say that an allreduce works at this size, not what a network can do.
"""

import statistics
import time
from types import ModuleType
from typing import Any, Callable, Optional

import numpy as np
from program_session import Session

#: From 4 B to 64 MiB in steps of 16.
BYTES = tuple(4 * 16**power for power in range(7))
#: The part of them that ``--quick`` takes.
QUICK_BYTES = BYTES[:5:2]

_MOST_REPEATS = 20
_LEAST_REPEATS = 3
#: Seconds after which no more repeats of one size are made, beyond the least.
_BUDGET = 0.3


def run(session: Session, mpi: Optional[ModuleType]) -> None:
    """Measure Horovod, and mpi4py on NumPy buffers as the reference where ``mpi`` is given."""
    for size in QUICK_BYTES if session.quick else BYTES:
        _measure(session, "horovod", size, _horovod(session, size))
        if mpi:
            _measure(session, "mpi4py", size, _mpi4py(mpi, size))


def _horovod(session: Session, size: int) -> Callable[[], Any]:
    # Zeros, because the sum may be in place, over and over.
    tensor = session.tensor(np.zeros(size // 4, np.float32))

    def allreduce() -> None:
        session.framework.allreduce_in_place(session, tensor, f"bandwidth {size}")
        session.framework.wait()

    return allreduce


def _mpi4py(mpi: ModuleType, size: int) -> Callable[[], Any]:
    buffer = np.zeros(size // 4, np.float32)
    return lambda: mpi.COMM_WORLD.Allreduce(mpi.IN_PLACE, buffer, op=mpi.SUM)


def _measure(session: Session, method: str, size: int, allreduce: Callable[[], Any]) -> None:
    def timed() -> float:
        begin = time.perf_counter()
        allreduce()
        return time.perf_counter() - begin

    def median() -> float:
        warm_up = max(timed(), timed())
        repeats = min(_MOST_REPEATS, max(_LEAST_REPEATS, int(_BUDGET / warm_up)))
        return statistics.median(timed() for _ in range(_agreed(session, repeats)))

    seconds = session.recorder.check(
        f"bandwidth of allreduce sum by {method}", median, dtype="float32", elements=size // 4
    )
    session.recorder.emit("bandwidth", method=method, bytes=size, seconds=seconds)


def _agreed(session: Session, repeats: int) -> int:
    """The least ``repeats`` of all ranks."""
    mine = session.tensor(np.array([repeats]))
    return int(session.array(session.hvd.allgather(mine, name="repeats")).min())
