"""The benchmark of collectives that every rank runs, under the Python of PyTorch.

    mpirun -np 2 python program_collectives.py --controller mpi --out DIR --parts allreduce

It times Horovod and its peers in turn in the same processes: mpi4py where MPI is Horovod's
controller, torch.distributed over Gloo where Gloo is.  As in nccl-tests and the OSU
micro-benchmarks, a size is warmed up, its result is compared with what is known, and it is then
called in a loop, without a barrier, as often as fits into some tenths of a second.

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
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import horovod.torch as hvd
import torch
import torch.distributed as dist

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


class Call(NamedTuple):
    """A call that is timed.

    Args:
        run: makes it.
        inputs: what it reads; filled before the result is checked.
        result: what it leaves, called after it.
        expected: each element of that.
    """

    run: Callable[[], Any]
    inputs: torch.Tensor
    result: Callable[[Any], torch.Tensor]
    expected: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--controller", choices=["mpi", "gloo"], required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, required=True)
    parser.add_argument("--alone", action="store_true", help="without the peer")
    parser.add_argument("--seconds", type=float, required=True, help="for one size")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    methods: Dict[str, Any] = {"horovod": Horovod}
    if not args.alone:
        methods["peer"] = {"mpi": Mpi4py, "gloo": TorchDistributed}[args.controller](args.out)
    found: List[Dict[str, Any]] = []
    for part in args.parts:
        for what, call in PARTS[part](methods):
            found.append({**what, "seconds": _timed(call, args.seconds, what)})
    record = {"cores": len(os.sched_getaffinity(0)), "calls": found}
    (args.out / f"rank-{hvd.rank()}.json").write_text(json.dumps(record))
    hvd.barrier()
    hvd.shutdown()


def _allreduces(methods: Dict[str, Any]) -> Iterator[Tuple[Dict[str, Any], Call]]:
    """Sums of float32, in place, of every size."""
    for size in SIZES:
        yield from _collective(methods, "allreduce", "float32", True, size)


def _collectives(methods: Dict[str, Any]) -> Iterator[Tuple[Dict[str, Any], Call]]:
    """Every operation, with every type, in place and not."""
    for operation in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter"):
        for dtype in DTYPES:
            for in_place in (True, False):
                for size in FEW_SIZES:
                    if (operation, dtype, in_place) != ("allreduce", "float32", True):
                        yield from _collective(methods, operation, dtype, in_place, size)


def _collective(
    methods: Dict[str, Any], operation: str, dtype: str, in_place: bool, size: int
) -> Iterator[Tuple[Dict[str, Any], Call]]:
    what = {"operation": operation, "dtype": dtype, "in_place": in_place, "bytes": size}
    for name, method in methods.items():
        make = getattr(method, operation, None)
        elements = size // getattr(torch, dtype).itemsize
        call = make and make(elements, getattr(torch, dtype), in_place)
        if call:
            yield {"method": name, **what}, call


def _many(methods: Dict[str, Any]) -> Iterator[Tuple[Dict[str, Any], Call]]:
    """Sums of many small tensors, which Horovod fuses: as one group, and each by itself."""
    for each in SMALL:
        whole = torch.zeros(TENSORS, each // 4)
        tensors = list(whole.unbind())
        runs = {
            ("horovod", "grouped allreduce"): functools.partial(_grouped, tensors),
            ("horovod", "many allreduces"): functools.partial(_one_by_one, tensors),
        }
        if "peer" in methods:
            runs["peer", "many allreduces"] = functools.partial(methods["peer"].many, tensors)
        for (method, operation), run in runs.items():
            what = {"method": method, "operation": operation, "dtype": "float32"}
            what.update(in_place=True, bytes=each * TENSORS)
            expected = hvd.size() * (hvd.size() + 1) / 2
            yield what, Call(run, whole, lambda got, whole=whole: whole, expected)


def _grouped(tensors: List[torch.Tensor]) -> Any:
    name = _name("group", tensors[0])
    return hvd.grouped_allreduce_(tensors, name=name, op=hvd.Sum)


def _one_by_one(tensors: List[torch.Tensor]) -> Any:
    name = _name("one", tensors[0])
    handles = [
        hvd.allreduce_async_(tensor, name=f"{name} {number}", op=hvd.Sum)
        for number, tensor in enumerate(tensors)
    ]
    return [hvd.synchronize(handle) for handle in handles]


def _training(methods: Dict[str, Any]) -> Iterator[Tuple[Dict[str, Any], Call]]:
    """Steps of training: forward, backward with the gradients' average, and the update."""
    for name, (layers, width) in MODELS.items():
        for method in methods.values():
            torch.manual_seed(1)
            sizes = [torch.nn.Linear(width, width) for _ in range(layers)]
            model = torch.nn.Sequential(*(m for each in sizes for m in (each, torch.nn.ReLU())))
            step = method.training(name, model)
            if step is None:
                continue
            size = sum(each.numel() * each.element_size() for each in model.parameters())
            what = {"method": method.name, "operation": f"training, {name} model"}
            what.update(dtype="float32", in_place=True, bytes=size)
            data = torch.zeros(32, width)
            run = functools.partial(step, data)
            # the ranks have different data, and the same weights after each step
            weight = next(model.parameters())
            yield what, Call(run, data, functools.partial(_spread, weight), 0)


def _spread(weight: torch.Tensor, _: Any) -> torch.Tensor:
    """How far the weights of any rank are from those of the first."""
    return weight.detach() - hvd.broadcast(weight.detach(), 0, name="first")


class Horovod:
    """The operations of Horovod; None for what it does not have in this place."""

    name = "horovod"

    @staticmethod
    def allreduce(elements: int, dtype: torch.dtype, in_place: bool) -> Call:
        tensor, size = torch.zeros(elements, dtype=dtype), hvd.size()
        call = hvd.allreduce_ if in_place else hvd.allreduce
        run = functools.partial(call, tensor, name=_name("sum", tensor, in_place), op=hvd.Sum)
        return Call(run, tensor, lambda got: got, size * (size + 1) / 2)

    @staticmethod
    def broadcast(elements: int, dtype: torch.dtype, in_place: bool) -> Call:
        tensor = torch.zeros(elements, dtype=dtype)
        call = hvd.broadcast_ if in_place else hvd.broadcast
        run = functools.partial(call, tensor, 0, name=_name("broadcast", tensor, in_place))
        return Call(run, tensor, lambda got: got, 1)

    @staticmethod
    def allgather(elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        tensor = torch.zeros(elements // hvd.size(), dtype=dtype)
        run = functools.partial(hvd.allgather, tensor, name=_name("allgather", tensor))
        return None if in_place else Call(run, tensor, _by_rank, 1)

    @staticmethod
    def alltoall(elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        tensor = torch.zeros(elements - elements % hvd.size(), dtype=dtype)
        run = functools.partial(hvd.alltoall, tensor, name=_name("alltoall", tensor))
        return None if in_place else Call(run, tensor, _by_rank, 1)

    @staticmethod
    def reducescatter(elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        tensor, size = torch.zeros(elements - elements % hvd.size(), dtype=dtype), hvd.size()
        name = _name("reducescatter", tensor)
        run = functools.partial(hvd.reducescatter, tensor, name=name, op=hvd.Sum)
        return None if in_place else Call(run, tensor, lambda got: got, size * (size + 1) / 2)

    @staticmethod
    def training(name: str, model: torch.nn.Module) -> Callable[[torch.Tensor], None]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        names = [(f"{name} {key}", each) for key, each in model.named_parameters()]
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=names)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return functools.partial(_step, model, optimizer)


def _step(model: torch.nn.Module, optimizer: Any, data: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()


def _name(operation: str, tensor: torch.Tensor, *more: object) -> str:
    """The same name for each call of a size: what the ranks have agreed on once, they keep."""
    return " ".join(map(str, [operation, tensor.dtype, tensor.numel(), *more]))


def _by_rank(got: torch.Tensor) -> torch.Tensor:
    """Divide the part of each rank by what that rank filled in."""
    ranks = torch.arange(1, hvd.size() + 1, dtype=got.dtype)
    return got / ranks.repeat_interleave(got.numel() // hvd.size())


class Mpi4py:
    """The operations of mpi4py, for the one of the types that MPI has."""

    name = "peer"

    def __init__(self, out: pathlib.Path) -> None:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False  # Horovod does
        from mpi4py import MPI

        self.mpi, self.world = MPI, MPI.COMM_WORLD

    def allreduce(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given, result = torch.zeros(2, elements).unbind()
        source = self.mpi.IN_PLACE if in_place else given.numpy()
        target = given if in_place else result
        run = functools.partial(self.world.Allreduce, source, target.numpy(), op=self.mpi.SUM)
        return self._call(dtype, run, given, lambda _: target, hvd.size() * (hvd.size() + 1) / 2)

    def broadcast(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given = torch.zeros(elements)
        run = functools.partial(self.world.Bcast, given.numpy(), root=0)
        return self._call(dtype, run, given, lambda _: given, 1) if in_place else None

    def allgather(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        part = elements // hvd.size()
        given, result = torch.zeros(part), torch.zeros(part * hvd.size())
        run = functools.partial(self.world.Allgather, given.numpy(), result.numpy())
        call = self._call(dtype, run, given, lambda _: _by_rank(result), 1)
        return None if in_place else call

    def alltoall(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given, result = torch.zeros(2, elements - elements % hvd.size()).unbind()
        run = functools.partial(self.world.Alltoall, given.numpy(), result.numpy())
        call = self._call(dtype, run, given, lambda _: _by_rank(result), 1)
        return None if in_place else call

    def reducescatter(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        part, size = elements // hvd.size(), hvd.size()
        given, result = torch.zeros(part * size), torch.zeros(part)
        run = functools.partial(
            self.world.Reduce_scatter_block, given.numpy(), result.numpy(), op=self.mpi.SUM
        )
        call = self._call(dtype, run, given, lambda _: result, size * (size + 1) / 2)
        return None if in_place else call

    def many(self, tensors: List[torch.Tensor]) -> None:
        for tensor in tensors:
            self.world.Allreduce(self.mpi.IN_PLACE, tensor.numpy(), op=self.mpi.SUM)

    def training(self, name: str, model: torch.nn.Module) -> None:
        """It has none."""

    @staticmethod
    def _call(dtype: torch.dtype, *arguments: Any) -> Optional[Call]:
        return Call(*arguments) if dtype == torch.float32 else None


class TorchDistributed:
    """The operations of PyTorch's own Gloo."""

    name = "peer"

    def __init__(self, out: pathlib.Path) -> None:
        # where Horovod's Gloo is as well, for ranks on one machine
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        address = (out / "store").as_uri()
        dist.init_process_group(
            "gloo", init_method=address, rank=hvd.rank(), world_size=hvd.size()
        )

    def allreduce(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given = torch.zeros(elements, dtype=dtype)
        run = functools.partial(dist.all_reduce, given)
        total = hvd.size() * (hvd.size() + 1) / 2
        return Call(run, given, lambda _: given, total) if in_place else None

    def broadcast(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given = torch.zeros(elements, dtype=dtype)
        run = functools.partial(dist.broadcast, given, 0)
        return Call(run, given, lambda _: given, 1) if in_place else None

    def allgather(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        part = elements // hvd.size()
        given, result = torch.zeros(part, dtype=dtype), torch.zeros(part * hvd.size(), dtype=dtype)
        run = functools.partial(dist.all_gather_into_tensor, result, given)
        return None if in_place else Call(run, given, lambda _: _by_rank(result), 1)

    def alltoall(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given = torch.zeros(elements - elements % hvd.size(), dtype=dtype)
        result = torch.zeros_like(given)
        run = functools.partial(dist.all_to_all_single, result, given)
        return None if in_place else Call(run, given, lambda _: _by_rank(result), 1)

    def reducescatter(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        part, size = elements // hvd.size(), hvd.size()
        given, result = torch.zeros(part * size, dtype=dtype), torch.zeros(part, dtype=dtype)
        run = functools.partial(dist.reduce_scatter_tensor, result, given)
        return None if in_place else Call(run, given, lambda _: result, size * (size + 1) / 2)

    def many(self, tensors: List[torch.Tensor]) -> None:
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    def training(self, name: str, model: torch.nn.Module) -> Callable[[torch.Tensor], None]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        return functools.partial(_step, wrapped, optimizer)


PARTS: Dict[str, Callable[[Dict[str, Any]], Iterator[Tuple[Dict[str, Any], Call]]]] = {
    "allreduce": _allreduces,
    "collectives": _collectives,
    "many": _many,
    "training": _training,
}


def _timed(call: Call, budget: float, what: Dict[str, Any]) -> List[float]:
    """Check the result of a call, and return the wall times of others, as many on every rank.

    Raises:
        SystemExit: the result is wrong.
    """
    call.inputs.fill_(hvd.rank() + 1)
    got = call.result(call.run())
    if not torch.equal(got, torch.full_like(got, call.expected)):
        sys.exit(f"rank {hvd.rank()}: wrong result of {what}: {got.flatten()[:3]}")
    # else sums in place would grow until they are infinite
    call.inputs.zero_()

    def once() -> float:
        begin = time.perf_counter()
        call.run()
        return time.perf_counter() - begin

    warm_up = statistics.median(once() for _ in range(_WARM_UP))
    count = min(_MOST_CALLS, max(_LEAST_CALLS, int(budget / warm_up)))
    count = int(hvd.allgather(torch.tensor([count]), name="count").min())
    return [once() for _ in range(count)]


if __name__ == "__main__":
    main()
