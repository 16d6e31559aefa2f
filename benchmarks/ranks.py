"""Time the collectives of Horovod or of a peer: what every rank of collectives.py runs.

As in nccl-tests and the OSU micro-benchmarks, each size is warmed up, its result is compared with
the known one, and it is called in a loop without a barrier, on a GPU until the GPU is done.
"""

import itertools
import json
import os
import pathlib
import statistics
import sys
import time
from functools import partial

import torch

#: From 4 B to 256 MiB in steps of 4; and those for every type and operation.
SIZES = tuple(4**power for power in range(1, 15))
FEW_SIZES = SIZES[5:12:2]
DTYPES = ("float32", "float16", "bfloat16")
OPERATIONS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
IN_PLACE = ("allreduce", "broadcast")
#: How many small tensors are summed, such as gradients, and the bytes of each.
TENSORS, SMALL = 500, (1024, 16 * 1024, 64 * 1024)
#: Layers and their width: a toy, one whose gradients take as long as its layers, a large one.
MODELS = {"small": (3, 64), "medium": (6, 512), "large": (8, 2048)}
MOST_CALLS, LEAST_CALLS, WARM_UP = 2000, 5, 5


class Horovod:
    """Horovod's collectives."""

    def __init__(self, device, store):
        import horovod.torch as hvd

        hvd.init()
        self.hvd, self.end = hvd, hvd.shutdown
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()

    def call(self, operation, in_place, given, result):
        options = {"broadcast": {"root_rank": 0}, "allgather": {}, "alltoall": {}}
        options = options.get(operation, {"op": self.hvd.Sum})
        # the same name each time: what the ranks have agreed on once, they keep
        options["name"] = f"{operation} {given.dtype} {given.numel()} {in_place}"
        return partial(getattr(self.hvd, operation + "_" * in_place), given, **options)

    def many(self, tensors):
        start = partial(self.hvd.allreduce_async_, op=self.hvd.Sum)
        names = [f"{number} of {tensors[0].numel()}" for number in range(len(tensors))]
        for handle in [start(each, name=name) for each, name in zip(tensors, names)]:
            self.hvd.synchronize(handle)

    def distribute(self, name, model, optimizer):
        names = [(f"{name} {key}", each) for key, each in model.named_parameters()]
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return model, self.hvd.DistributedOptimizer(optimizer, named_parameters=names)


class Mpi4py:
    """mpi4py's collectives, of the only one of the types that MPI has."""

    distribute = None

    def __init__(self, device, store):
        from mpi4py import MPI

        self.in_place, world, self.end = MPI.IN_PLACE, MPI.COMM_WORLD, MPI.Finalize
        self.rank, self.size = world.rank, world.size
        names = ("Allreduce", "Allgather", "Bcast", "Alltoall", "Reduce_scatter_block")
        self.calls = {key: getattr(world, name) for key, name in zip(OPERATIONS, names)}

    def call(self, operation, in_place, given, result):
        if given.dtype != torch.float32 or (operation, in_place) == ("broadcast", False):
            return None
        buffers = [given.numpy()] if in_place else [given.numpy(), result.numpy()]
        buffers[:0] = [self.in_place] * (operation == "allreduce" and in_place)
        return partial(self.calls[operation], *buffers)

    def many(self, tensors):
        for tensor in tensors:
            self.calls["allreduce"](self.in_place, tensor.numpy())


class TorchDistributed:
    """PyTorch's collectives, over Gloo or NCCL; horovodrun tells the ranks who they are."""

    def __init__(self, device, store):
        import torch.distributed as dist

        names = ("RANK", "SIZE", "LOCAL_RANK")
        ranks = (int(os.environ[f"HOROVOD_{name}"]) for name in names)
        self.rank, self.size, self.local_rank = ranks
        # as for Horovod, of ranks on one machine
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        options = {"rank": self.rank, "world_size": self.size, "init_method": store.as_uri()}
        dist.init_process_group("nccl" if device == "gpu" else "gloo", **options)
        self.dist, self.end = dist, dist.destroy_process_group

    def call(self, operation, in_place, given, result):
        if operation in IN_PLACE and not in_place:
            return None
        names = ("all_reduce", "all_gather_into_tensor", "broadcast", "all_to_all_single")
        names = dict(zip(OPERATIONS, (*names, "reduce_scatter_tensor")))
        options = {"src": 0} if operation == "broadcast" else {}
        tensors = (given,) if in_place else (result, given)
        return partial(getattr(self.dist, names[operation]), *tensors, **options)

    def many(self, tensors):
        for work in [self.dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    def distribute(self, name, model, optimizer):
        return torch.nn.parallel.DistributedDataParallel(model), optimizer


def collective(library, operation, dtype, in_place, size):
    """Yield facts of a call, what calls it, its input, its result, and what that should be."""
    ranks, kind = library.size, getattr(torch, dtype)
    elements = size // kind.itemsize
    elements -= 0 if operation in IN_PLACE else elements % ranks
    given = torch.zeros(elements // (ranks if operation == "allgather" else 1), dtype=kind)
    parts = ranks if operation == "reducescatter" else 1
    result = given if in_place else torch.zeros(elements // parts, dtype=kind)
    known = torch.tensor(1 if operation == "broadcast" else sum(range(ranks + 1)), dtype=kind)
    if operation in ("allgather", "alltoall"):
        known = torch.arange(1, ranks + 1, dtype=kind).repeat_interleave(elements // ranks)
    run = library.call(operation, in_place, given, result)
    if run:
        what = {"operation": operation, "dtype": dtype, "in_place": in_place, "bytes": size}
        yield what, run, given, result, lambda: known.expand_as(result)


def allreduces(library):
    """Sums of float32 in place, of every size."""
    for size in SIZES:
        yield from collective(library, "allreduce", "float32", True, size)


def collectives(library):
    """Every operation and type, in place and not."""
    for key in itertools.product(OPERATIONS, DTYPES, (True, False)):
        if key != ("allreduce", "float32", True) and (key[0] in IN_PLACE or not key[2]):
            for size in FEW_SIZES:
                yield from collective(library, *key, size)


def many(library):
    """Sums of many small tensors: each by itself, and Horovod's as a group."""
    for size in SMALL:
        whole = torch.zeros(TENSORS, size // 4)
        known = torch.full_like(whole, sum(range(library.size + 1)))
        runs = {"many allreduces": partial(library.many, list(whole.unbind()))}
        if isinstance(library, Horovod):
            group, options = library.hvd.grouped_allreduce_, {"op": library.hvd.Sum}
            options["name"] = f"group of {size}"
            runs["grouped allreduce"] = partial(group, list(whole.unbind()), **options)
        for name, run in runs.items():
            what = {"operation": name, "dtype": "float32", "in_place": True}
            yield {**what, "bytes": size * TENSORS}, run, whole, whole, partial(torch.clone, known)


def step(model, optimizer, data):
    """A step of training: forward, backward with the gradients' average, and the update."""
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()


def training(library):
    """Steps of training, after which the ranks have the same weights, though of other data."""
    for name, (layers, width) in MODELS.items() if library.distribute else ():
        torch.manual_seed(1)
        linear = [torch.nn.Linear(width, width) for _ in range(layers)]
        model = torch.nn.Sequential(*(each for one in linear for each in (one, torch.nn.ReLU())))
        weights = [each.detach() for each in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        data, rank_0s = torch.zeros(32, width), partial(gathered, library, weights[0], 0)
        run = partial(step, *library.distribute(name, model, optimizer), data)
        what = {"operation": f"training, {name} model", "dtype": "float32", "in_place": True}
        size = sum(each.numel() * each.element_size() for each in weights)
        yield {**what, "bytes": size}, run, data, weights[0], rank_0s


PARTS = {"allreduce": allreduces, "collectives": collectives, "many": many, "training": training}


def gathered(library, tensor, rank=slice(None)):
    """The values of a tensor of float32 on all ranks, or on one."""
    result = torch.zeros(library.size, *tensor.shape)
    got = library.call("allgather", False, tensor[None], result)()
    return (result if got is None else got)[rank]


def timed(library, budget, what, run, given, output, known):
    """Check the result of a call, and return the seconds of others on their slowest rank."""
    given.fill_(library.rank + 1)
    got = run()
    # mostly where it is to be; Horovod's operations that are not in place return it
    got = got if isinstance(got, torch.Tensor) else output
    if not torch.equal(got, known()):
        sys.exit(f"rank {library.rank}: wrong result of {what}: {got.flatten()[:3]}")
    # sums in place would grow until they are infinite
    given.zero_()

    def once():
        begin = time.perf_counter()
        run()
        if given.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    warm_up = statistics.median(once() for _ in range(WARM_UP))
    count = min(MOST_CALLS, max(LEAST_CALLS, int(budget / warm_up)))
    count = int(gathered(library, torch.tensor([float(count)])).min())
    seconds = torch.tensor([once() for _ in range(count)])
    return gathered(library, seconds).max(0).values.tolist()


def main(library, device, parts, seconds, scratch):
    torch.set_num_threads(1)
    libraries = {"horovod": Horovod, "mpi4py": Mpi4py, "torch": TorchDistributed}
    library = libraries[library](device, pathlib.Path(scratch, "store"))
    if device == "gpu":
        torch.cuda.set_device(library.local_rank)
        torch.set_default_device("cuda")
    calls = []
    for what, *work in itertools.chain(*(PARTS[part](library) for part in parts)):
        calls.append({**what, "seconds": timed(library, seconds, what, *work)})
    if library.rank == 0:
        pathlib.Path(scratch, "calls.json").write_text(json.dumps(calls))
    gathered(library, torch.zeros(1))
    library.end()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
