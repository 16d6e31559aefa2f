"""The benchmark of allreduces that every rank runs, under the Python of PyTorch.

    mpirun -np 2 python program_allreduce.py mpi DIR

Times a sum of float32 by Horovod and by a reference, in turn, in the same processes.  The
reference is mpi4py if MPI is Horovod's controller, and torch.distributed over Gloo if Gloo is.
Each rank writes ``rank-R.json`` in DIR: a list of method, bytes per rank, and the wall time of
each repetition in seconds.
"""

import json
import os
import pathlib
import statistics
import sys
import time
from typing import Callable, List, Tuple

import horovod.torch as hvd
import torch

#: From 4 B to 256 MiB in steps of 4.
BYTES = tuple(4 * 4**power for power in range(14))
_MOST_REPEATS = 15
_LEAST_REPEATS = 5
#: Seconds after which no more repetitions are made, beyond the least.
_BUDGET = 0.5


def main() -> None:
    controller, out = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    hvd.init()
    peer = {"mpi": _mpi4py, "gloo": _gloo}[controller](out)
    found: List[Tuple[str, int, List[float]]] = []
    for size in BYTES:
        tensor = torch.zeros(size // 4)
        methods = {
            "horovod": lambda tensor=tensor, size=size: hvd.allreduce_(
                tensor, name=f"allreduce {size}", op=hvd.Sum
            ),
            "peer": lambda tensor=tensor: peer(tensor),
        }
        for name, allreduce in methods.items():
            found.append((name, size, _timed(allreduce)))
    (out / f"rank-{hvd.rank()}.json").write_text(json.dumps(found))
    hvd.barrier()
    hvd.shutdown()


def _timed(allreduce: Callable[[], object]) -> List[float]:
    """Seconds of each repetition, which all ranks begin at about the same time."""

    def once() -> float:
        hvd.barrier()
        begin = time.perf_counter()
        allreduce()
        return time.perf_counter() - begin

    warm_up = statistics.median(once() for _ in range(3))
    count = min(_MOST_REPEATS, max(_LEAST_REPEATS, int(_BUDGET / warm_up)))
    # the same on every rank
    count = int(hvd.allgather(torch.tensor([count]), name="count").min())
    return [once() for _ in range(count)]


def _mpi4py(out: pathlib.Path) -> Callable[[torch.Tensor], object]:
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False  # Horovod does
    from mpi4py import MPI

    return lambda tensor: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, tensor.numpy(), op=MPI.SUM)


def _gloo(out: pathlib.Path) -> Callable[[torch.Tensor], object]:
    import torch.distributed as distributed

    # where Horovod's Gloo is as well, for ranks on one machine
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group(
        "gloo", init_method=(out / "store").as_uri(), rank=hvd.rank(), world_size=hvd.size()
    )
    return distributed.all_reduce


if __name__ == "__main__":
    main()
