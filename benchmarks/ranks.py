"""Time the collectives of Horovod or of a peer, as nccl-tests does: what every rank runs."""

import gc
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
#: Layers and their width: a toy, one whose gradients take as long as its layers, a large one.
MODELS = {"small": (3, 64), "medium": (6, 512), "large": (8, 2048)}
#: Allreduces of many tensors, by method below: how many, and elements of float32 in all.
LISTS = {"group": (62, 31 * 2**18), "singly": (500, 500 * 250)}
MOST_CALLS, LEAST_CALLS, WARM_UP = 2000, 5, 5


class Horovod:
    """Horovod's collectives."""

    def __init__(self, device, store):
        import horovod.torch as hvd

        hvd.init()
        self.hvd, self.end = hvd, hvd.shutdown
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()

    def call(self, operation, given, result):
        options = {"broadcast": {"root_rank": 0}, "allgather": {}, "alltoall": {}}
        options = options.get(operation, {"op": self.hvd.Sum})
        # the same name each time: what the ranks have agreed on once, they keep
        options["name"] = f"{operation} {given.dtype} {given.numel()}"
        name = operation + "_" * (operation in IN_PLACE)
        return partial(getattr(self.hvd, name), given, **options)

    def group(self, tensors):
        return partial(self.hvd.grouped_allreduce_, tensors, op=self.hvd.Sum, name="group")

    def singly(self, tensors):
        begin = partial(self.hvd.allreduce_async_, op=self.hvd.Sum)
        named = [(each, f"singly {number}") for number, each in enumerate(tensors)]
        wait = self.hvd.synchronize
        return lambda: list(map(wait, [begin(each, name=name) for each, name in named]))

    def beside(self, given, result):
        return partial(self.hvd.allreduce, given, op=self.hvd.Sum, name=f"beside {given.numel()}")

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

    def call(self, operation, given, result):
        if given.dtype != torch.float32:
            return None
        first = [self.in_place] * (operation == "allreduce")
        second = [] if operation in IN_PLACE else [result.numpy()]
        return partial(self.calls[operation], *first, given.numpy(), *second)

    def group(self, tensors):
        calls = [self.call("allreduce", each, each) for each in tensors]
        return lambda: [call() for call in calls]

    singly = group

    def beside(self, given, result):
        return partial(self.calls["allreduce"], given.numpy(), result.numpy())


class TorchDistributed:
    """PyTorch's collectives, over Gloo or NCCL; horovodrun tells the ranks who they are."""

    def __init__(self, device, store):
        import torch.distributed as dist

        names = ("RANK", "SIZE", "LOCAL_RANK")
        names = (int(os.environ[f"HOROVOD_{name}"]) for name in names)
        self.rank, self.size, self.local_rank = names
        # as for Horovod, of ranks on one machine
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        options = {"rank": self.rank, "world_size": self.size, "init_method": store.as_uri()}
        dist.init_process_group("nccl" if device == "gpu" else "gloo", **options)
        self.dist, self.end = dist, dist.destroy_process_group

    def call(self, operation, given, result):
        names = ("all_reduce", "all_gather_into_tensor", "broadcast", "all_to_all_single")
        names = dict(zip(OPERATIONS, (*names, "reduce_scatter_tensor")))
        options = {"src": 0} if operation == "broadcast" else {}
        tensors = (given,) if operation in IN_PLACE else (result, given)
        return partial(getattr(self.dist, names[operation]), *tensors, **options)

    def group(self, tensors):
        begin = partial(self.dist.all_reduce, async_op=True)
        return lambda: [work.wait() for work in [begin(each) for each in tensors]]

    singly = group

    def beside(self, given, result):
        return lambda: self.dist.all_reduce(result.copy_(given))

    def distribute(self, name, model, optimizer):
        return torch.nn.parallel.DistributedDataParallel(model), optimizer


def collectives(library, operations=OPERATIONS, dtypes=DTYPES, sizes=FEW_SIZES):
    """Yield facts of a call, what calls it, its input, its result, and what that should be."""
    ranks = library.size
    for operation, dtype, size in itertools.product(operations, dtypes, sizes):
        kind = getattr(torch, dtype)
        elements = size // kind.itemsize
        elements -= 0 if operation in IN_PLACE else elements % ranks
        parts = {"allgather": (ranks, 1), "reducescatter": (1, ranks)}.get(operation, (1, 1))
        given, result = (torch.zeros(elements // each, dtype=kind) for each in parts)
        result = given if operation in IN_PLACE else result
        known = torch.tensor(1 if operation == "broadcast" else sum(range(ranks + 1)), dtype=kind)
        if operation in ("allgather", "alltoall"):
            known = torch.arange(1, ranks + 1, dtype=kind).repeat_interleave(elements // ranks)
        run = library.call(operation, given, result)
        if run:
            what = {"operation": operation, "dtype": dtype, "bytes": size}
            yield what, run, given, result, partial(known.expand_as, result)


def lists(library):
    """Allreduces of many tensors, in place, and of one that is not: as `collectives`."""
    known = torch.tensor(float(sum(range(library.size + 1))))
    for method, (count, elements) in LISTS.items():
        flat = torch.zeros(elements)
        run = getattr(library, method)(list(flat.chunk(count)))
        title = f"group of {count} tensors" if method == "group" else f"{count} tensors"
        what = {"operation": title, "dtype": "float32", "bytes": 4 * elements}
        yield what, run, flat, flat, partial(known.expand_as, flat)
    for size in FEW_SIZES:
        given, result = torch.zeros(size // 4), torch.zeros(size // 4)
        what = {"operation": "out of place", "dtype": "float32", "bytes": size}
        yield what, library.beside(given, result), given, result, partial(known.expand_as, result)


def step(model, optimizer, data):
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()


def training(library):
    """Steps of training, after which ranks have the same weights, though not the same data."""
    for name, (layers, width) in MODELS.items() if library.distribute else ():
        torch.manual_seed(1)
        linear = [torch.nn.Linear(width, width) for _ in range(layers)]
        model = torch.nn.Sequential(*(each for one in linear for each in (one, torch.nn.ReLU())))
        weights = [each.detach() for each in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        data, rank_0s = torch.zeros(32, width), partial(gathered, library, weights[0], 0)
        run = partial(step, *library.distribute(name, model, optimizer), data)
        what = {"operation": f"training, {name} model", "dtype": "float32"}
        size = sum(each.numel() * each.element_size() for each in weights)
        yield {**what, "bytes": size}, run, data, weights[0], rank_0s


PARTS = {
    "allreduce": partial(collectives, operations=["allreduce"], dtypes=["float32"], sizes=SIZES),
    "collectives": collectives,
    "lists": lists,
    "training": training,
}


def gathered(library, tensor, rank=slice(None)):
    """The values of a tensor of float32 on all ranks, or on one."""
    result = torch.zeros(library.size, *tensor.shape)
    got = library.call("allgather", tensor[None], result)()
    return (result if got is None else got)[rank]


def timed(library, budget, what, run, given, output, known):
    """Check the result of a call, and return the seconds of others on their slowest rank."""
    given.fill_(library.rank + 1)
    got = run()
    # Horovod returns it, but for lists of tensors
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
    work = itertools.chain(*(PARTS[part](library) for part in parts))
    calls = [{**each[0], "seconds": timed(library, seconds, *each)} for each in work]
    if library.rank == 0:
        pathlib.Path(scratch, "calls.json").write_text(json.dumps(calls))
    gathered(library, torch.zeros(1))
    # PyTorch aborts if a model that is distributed outlives the process group
    del work
    gc.collect()
    library.end()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
