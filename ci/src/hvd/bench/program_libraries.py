"""The libraries that ``program_collectives.py`` times, each with the same calls."""

import functools
import os
import pathlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch


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


def _step(model: torch.nn.Module, optimizer: Any, data: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()


def _name(operation: str, tensor: torch.Tensor, *more: object) -> str:
    """The same name for each call of a size: what the ranks have agreed on once, they keep."""
    return " ".join(map(str, [operation, tensor.dtype, tensor.numel(), *more]))


class Method:
    """A library's collectives; a method returns None for what the library does not have.

    Args:
        rank: this rank's number.
        size: the number of ranks.
        total: the sum of every rank's number plus one.
        gpu: the number of the GPU with this rank's tensors; None for the CPU.
    """

    def __init__(self, rank: int, size: int, gpu: Optional[int] = None) -> None:
        self.rank, self.size = rank, size
        if gpu is not None:
            torch.cuda.set_device(gpu)
            torch.set_default_device("cuda")
        self.total = size * (size + 1) / 2

    def by_rank(self, got: torch.Tensor) -> torch.Tensor:
        """Divide the part of each rank by what that rank filled in."""
        ranks = torch.arange(1, self.size + 1, dtype=got.dtype)
        return got / ranks.repeat_interleave(got.numel() // self.size)


class Horovod(Method):
    """The operations of Horovod."""

    def __init__(self, on_gpu: bool) -> None:
        import horovod.torch

        self.hvd = horovod.torch
        self.hvd.init()
        gpu = self.hvd.local_rank() if on_gpu else None
        super().__init__(self.hvd.rank(), self.hvd.size(), gpu)

    def allreduce(self, elements: int, dtype: torch.dtype, in_place: bool) -> Call:
        tensor = torch.zeros(elements, dtype=dtype)
        call = self.hvd.allreduce_ if in_place else self.hvd.allreduce
        name = _name("sum", tensor, in_place)
        run = functools.partial(call, tensor, name=name, op=self.hvd.Sum)
        return Call(run, tensor, lambda got: got, self.total)

    def broadcast(self, elements: int, dtype: torch.dtype, in_place: bool) -> Call:
        tensor = torch.zeros(elements, dtype=dtype)
        call = self.hvd.broadcast_ if in_place else self.hvd.broadcast
        run = functools.partial(call, tensor, 0, name=_name("broadcast", tensor, in_place))
        return Call(run, tensor, lambda got: got, 1)

    def allgather(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        tensor = torch.zeros(elements // self.size, dtype=dtype)
        run = functools.partial(self.hvd.allgather, tensor, name=_name("allgather", tensor))
        return None if in_place else Call(run, tensor, self.by_rank, 1)

    def alltoall(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        tensor = torch.zeros(elements - elements % self.size, dtype=dtype)
        run = functools.partial(self.hvd.alltoall, tensor, name=_name("alltoall", tensor))
        return None if in_place else Call(run, tensor, self.by_rank, 1)

    def reducescatter(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        tensor = torch.zeros(elements - elements % self.size, dtype=dtype)
        name = _name("reducescatter", tensor)
        run = functools.partial(self.hvd.reducescatter, tensor, name=name, op=self.hvd.Sum)
        return None if in_place else Call(run, tensor, lambda got: got, self.total)

    def many(self, tensors: List[torch.Tensor]) -> Dict[str, Callable[[], Any]]:
        name = _name("many", tensors[0])
        group = functools.partial(
            self.hvd.grouped_allreduce_, tensors, name=f"{name} grouped", op=self.hvd.Sum
        )

        def one_by_one() -> None:
            handles = [
                self.hvd.allreduce_async_(tensor, name=f"{name} {number}", op=self.hvd.Sum)
                for number, tensor in enumerate(tensors)
            ]
            for handle in handles:
                self.hvd.synchronize(handle)

        return {"grouped allreduce": group, "many allreduces": one_by_one}

    def training(self, name: str, model: torch.nn.Module) -> Callable[[torch.Tensor], None]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        names = [(f"{name} {key}", each) for key, each in model.named_parameters()]
        optimizer = self.hvd.DistributedOptimizer(optimizer, named_parameters=names)
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return functools.partial(_step, model, optimizer)

    def first(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.hvd.broadcast(tensor, 0, name="first")

    def least(self, count: int) -> int:
        return int(self.hvd.allgather(torch.tensor([count]), name="count").min())

    def end(self) -> None:
        self.hvd.barrier()
        self.hvd.shutdown()


class Mpi4py(Method):
    """The operations of mpi4py, for the one of the types that MPI has."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi, self.world = MPI, MPI.COMM_WORLD
        super().__init__(self.world.rank, self.world.size)

    def allreduce(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given, result = torch.zeros(2, elements).unbind()
        source = self.mpi.IN_PLACE if in_place else given.numpy()
        target = given if in_place else result
        run = functools.partial(self.world.Allreduce, source, target.numpy(), op=self.mpi.SUM)
        return self._call(dtype, run, given, lambda _: target, self.total)

    def broadcast(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given = torch.zeros(elements)
        run = functools.partial(self.world.Bcast, given.numpy(), root=0)
        return self._call(dtype, run, given, lambda _: given, 1) if in_place else None

    def allgather(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        part = elements // self.size
        given, result = torch.zeros(part), torch.zeros(part * self.size)
        run = functools.partial(self.world.Allgather, given.numpy(), result.numpy())
        call = self._call(dtype, run, given, lambda _: self.by_rank(result), 1)
        return None if in_place else call

    def alltoall(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given, result = torch.zeros(2, elements - elements % self.size).unbind()
        run = functools.partial(self.world.Alltoall, given.numpy(), result.numpy())
        call = self._call(dtype, run, given, lambda _: self.by_rank(result), 1)
        return None if in_place else call

    def reducescatter(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        part = elements // self.size
        given, result = torch.zeros(part * self.size), torch.zeros(part)
        run = functools.partial(
            self.world.Reduce_scatter_block, given.numpy(), result.numpy(), op=self.mpi.SUM
        )
        call = self._call(dtype, run, given, lambda _: result, self.total)
        return None if in_place else call

    def many(self, tensors: List[torch.Tensor]) -> Dict[str, Callable[[], Any]]:
        def one_by_one() -> None:
            for tensor in tensors:
                self.world.Allreduce(self.mpi.IN_PLACE, tensor.numpy(), op=self.mpi.SUM)

        return {"many allreduces": one_by_one}

    def training(self, name: str, model: torch.nn.Module) -> None:
        """It has none."""

    def least(self, count: int) -> int:
        return self.world.allreduce(count, op=self.mpi.MIN)

    def end(self) -> None:
        """MPI ends with the process."""

    @staticmethod
    def _call(dtype: torch.dtype, *arguments: Any) -> Optional[Call]:
        return Call(*arguments) if dtype == torch.float32 else None


class TorchDistributed(Method):
    """The operations of PyTorch's own Gloo or NCCL; ``horovodrun`` says which rank this is."""

    def __init__(self, out: pathlib.Path, on_gpu: bool) -> None:
        import torch.distributed

        self.dist = torch.distributed
        names = ("RANK", "SIZE", "LOCAL_RANK")
        rank, size, local_rank = (int(os.environ[f"HOROVOD_{name}"]) for name in names)
        super().__init__(rank, size, local_rank if on_gpu else None)
        # where Horovod's Gloo is as well, for ranks on one machine
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self.dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            init_method=(out / "store").as_uri(),
            rank=self.rank,
            world_size=self.size,
        )

    def allreduce(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given = torch.zeros(elements, dtype=dtype)
        run = functools.partial(self.dist.all_reduce, given)
        return Call(run, given, lambda _: given, self.total) if in_place else None

    def broadcast(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given = torch.zeros(elements, dtype=dtype)
        run = functools.partial(self.dist.broadcast, given, 0)
        return Call(run, given, lambda _: given, 1) if in_place else None

    def allgather(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        part = elements // self.size
        given = torch.zeros(part, dtype=dtype)
        result = torch.zeros(part * self.size, dtype=dtype)
        run = functools.partial(self.dist.all_gather_into_tensor, result, given)
        return None if in_place else Call(run, given, lambda _: self.by_rank(result), 1)

    def alltoall(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        given = torch.zeros(elements - elements % self.size, dtype=dtype)
        result = torch.zeros_like(given)
        run = functools.partial(self.dist.all_to_all_single, result, given)
        return None if in_place else Call(run, given, lambda _: self.by_rank(result), 1)

    def reducescatter(self, elements: int, dtype: torch.dtype, in_place: bool) -> Optional[Call]:
        part = elements // self.size
        given = torch.zeros(part * self.size, dtype=dtype)
        result = torch.zeros(part, dtype=dtype)
        run = functools.partial(self.dist.reduce_scatter_tensor, result, given)
        return None if in_place else Call(run, given, lambda _: result, self.total)

    def many(self, tensors: List[torch.Tensor]) -> Dict[str, Callable[[], Any]]:
        def one_by_one() -> None:
            for work in [self.dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
                work.wait()

        return {"many allreduces": one_by_one}

    def training(self, name: str, model: torch.nn.Module) -> Callable[[torch.Tensor], None]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        return functools.partial(_step, wrapped, optimizer)

    def first(self, tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.clone()
        self.dist.broadcast(copy, 0)
        return copy

    def least(self, count: int) -> int:
        found = torch.tensor(count)
        self.dist.all_reduce(found, self.dist.ReduceOp.MIN)
        return int(found)

    def end(self) -> None:
        self.dist.barrier()
        self.dist.destroy_process_group()
