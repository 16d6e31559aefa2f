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

import functools
import statistics
import time
from typing import Callable

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


def run(session: Session) -> None:
    """Measure Horovod, and as the reference mpi4py on NumPy buffers if it is there."""
    for size in QUICK_BYTES if session.quick else BYTES:
        for method in ["horovod"] + ["mpi4py"] * bool(session.mpi):
            seconds = session.recorder.check(
                f"bandwidth of allreduce sum by {method}",
                functools.partial(_median, session, _call(session, method, size)),
                dtype="float32",
                elements=size // 4,
            )
            session.recorder.emit("bandwidth", method=method, bytes=size, seconds=seconds)


def _call(session: Session, method: str, size: int) -> Callable[[], None]:
    """Return a function that sums ``size`` bytes, of zeros: it may be in place, over and over."""
    zeros = np.zeros(size // 4, np.float32)
    if method == "mpi4py":
        mpi = session.mpi
        return lambda: mpi.COMM_WORLD.Allreduce(mpi.IN_PLACE, zeros, op=mpi.SUM)
    tensor = session.tensor(zeros)

    def by_horovod() -> None:
        session.allreduce_in_place(tensor, f"bandwidth {size}")
        session.wait()

    return by_horovod


def _median(session: Session, allreduce: Callable[[], None]) -> float:
    """Return the seconds of one of several; as many as the rank makes that makes the least."""

    def timed() -> float:
        begin = time.perf_counter()
        allreduce()
        return time.perf_counter() - begin

    warm_up = max(timed(), timed())
    repeats = min(_MOST_REPEATS, max(_LEAST_REPEATS, int(_BUDGET / warm_up)))
    repeats = int(session.gather([repeats], "repeats").min())
    return statistics.median(timed() for _ in range(repeats))
