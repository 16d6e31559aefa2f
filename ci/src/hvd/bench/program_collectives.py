"""The benchmark of collectives that every rank runs, under the Python of PyTorch.

    mpirun -np 2 python program_collectives.py --controller mpi --method peer --out DIR ...

It times Horovod, or its peer: mpi4py where MPI is the controller, torch.distributed over Gloo
where Gloo is, or over NCCL with ``--device gpu``.  Each has processes of its own, as Horovod's
background thread would take cores from the peer.  As in nccl-tests and the OSU micro-benchmarks, a
size is warmed up, its result is compared with what is known, and it is then called in a loop,
without a barrier, for some tenths of a second.  A call on a GPU is over when the GPU is done.

The size of an allreduce or a broadcast is the bytes of a rank's buffer; that of an allgather, an
alltoall or a reducescatter is the bytes of all of it, on any one rank:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md

Each rank writes ``rank-R.json`` in DIR: the number of cores it may use, and a list of what was
timed, with the wall time of each call in seconds.
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch
from program_libraries import Call, Horovod, Mpi4py, TorchDistributed

MIB = 2**20
#: From 4 B to 256 MiB in steps of 4.
SIZES = tuple(4 * 4**power for power in range(14))
#: For what is measured for every type and operation.
FEW_SIZES = (4096, 64 * 1024, MIB, 16 * MIB)
DTYPES = ("float32", "float16", "bfloat16")
#: Bytes of each of many small tensors, such as the gradients of a model.
SMALL = (1024, 16 * 1024, 64 * 1024)
TENSORS = 500
#: Layers of the models: a toy, one whose gradients take as long as its layers, a large one.
MODELS = {"small": (3, 64), "medium": (6, 512), "large": (8, 2048)}
_MOST_CALLS = 2000
_LEAST_CALLS = 5
_WARM_UP = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", choices=["horovod", "peer"], required=True)
    parser.add_argument("--controller", choices=["mpi", "gloo"], required=True)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="for one size")
    args = parser.parse_args()
    on_gpu = args.device == "gpu"
    if on_gpu and args.method == "peer" and args.controller == "mpi":
        parser.error("--device gpu --method peer needs --controller gloo: mpi4py has no GPU")
    torch.set_num_threads(1)
    method: Any
    if args.method == "horovod":
        method = Horovod(on_gpu)
    elif args.controller == "mpi":
        method = Mpi4py()
    else:
        method = TorchDistributed(args.out, on_gpu)
    found: List[Dict[str, Any]] = []
    for part in args.parts:
        for what, call in PARTS[part](method):
            found.append({**what, "seconds": _timed(method, call, args.seconds, what)})
    record = {"cores": len(os.sched_getaffinity(0)), "calls": found}
    (args.out / f"rank-{method.rank}.json").write_text(json.dumps(record))
    method.end()


def _allreduces(method: Any) -> Iterator[Tuple[Dict[str, Any], Call]]:
    """Sums of float32, in place, of every size."""
    for size in SIZES:
        yield from _collective(method, "allreduce", "float32", True, size)


def _collectives(method: Any) -> Iterator[Tuple[Dict[str, Any], Call]]:
    """Every operation, with every type, in place and not."""
    for operation in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter"):
        for dtype in DTYPES:
            for in_place in (True, False):
                for size in FEW_SIZES:
                    if (operation, dtype, in_place) != ("allreduce", "float32", True):
                        yield from _collective(method, operation, dtype, in_place, size)


def _collective(
    method: Any, operation: str, dtype: str, in_place: bool, size: int
) -> Iterator[Tuple[Dict[str, Any], Call]]:
    make = getattr(method, operation, None)
    elements = size // getattr(torch, dtype).itemsize
    call = make and make(elements, getattr(torch, dtype), in_place)
    if call:
        what = {"operation": operation, "dtype": dtype, "in_place": in_place, "bytes": size}
        yield what, call


def _many(method: Any) -> Iterator[Tuple[Dict[str, Any], Call]]:
    """Sums of many small tensors, which Horovod fuses: as one group, and each by itself."""
    for each in SMALL:
        whole = torch.zeros(TENSORS, each // 4)
        for operation, run in method.many(list(whole.unbind())).items():
            what = {"operation": operation, "dtype": "float32", "in_place": True}
            what["bytes"] = each * TENSORS
            yield what, Call(run, whole, lambda got, whole=whole: whole, method.total)


def _training(method: Any) -> Iterator[Tuple[Dict[str, Any], Call]]:
    """Steps of training: forward, backward with the gradients' average, and the update."""
    for name, (layers, width) in MODELS.items():
        torch.manual_seed(1)
        sizes = [torch.nn.Linear(width, width) for _ in range(layers)]
        model = torch.nn.Sequential(*(m for each in sizes for m in (each, torch.nn.ReLU())))
        step = method.training(name, model)
        if step:
            size = sum(each.numel() * each.element_size() for each in model.parameters())
            what = {"operation": f"training, {name} model", "dtype": "float32"}
            what.update(in_place=True, bytes=size)
            data = torch.zeros(32, width)
            # the ranks have different data, and the same weights after each step
            weight = next(model.parameters()).detach()
            run = functools.partial(step, data)
            yield what, Call(run, data, lambda _, w=weight: w - method.first(w), 0)


PARTS: Dict[str, Callable[[Any], Iterator[Tuple[Dict[str, Any], Call]]]] = {
    "allreduce": _allreduces,
    "collectives": _collectives,
    "many": _many,
    "training": _training,
}


def _timed(method: Any, call: Call, budget: float, what: Dict[str, Any]) -> List[float]:
    """Check the result of a call, and return the wall times of others, as many on every rank.

    Raises:
        SystemExit: the result is wrong.
    """
    call.inputs.fill_(method.rank + 1)
    got = call.result(call.run())
    if not torch.equal(got, torch.full_like(got, call.expected)):
        sys.exit(f"rank {method.rank}: wrong result of {what}: {got.flatten()[:3]}")
    # else sums in place would grow until they are infinite
    call.inputs.zero_()

    on_gpu = call.inputs.is_cuda

    def once() -> float:
        begin = time.perf_counter()
        call.run()
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    warm_up = statistics.median(once() for _ in range(_WARM_UP))
    count = min(_MOST_CALLS, max(_LEAST_CALLS, int(budget / warm_up)))
    count = method.least(count)
    return [once() for _ in range(count)]


if __name__ == "__main__":
    main()
