"""Run by each rank: a collective of drawn tensors of PyTorch."""

import contextlib
import time
import unittest.mock
from functools import partial

import numpy_operations
import torch


def perform(world, mine=None, **spec):
    """Perform a collective as ``spec`` says, changed by ``mine``; return what is wrong."""
    start = partial(call, world.hvd)
    return numpy_operations.perform(world, {**spec, **(mine or {})}, make, start, read)


def make(case, array, layout):
    return lay_out(torch.tensor(array).to(getattr(torch, case["dtype"])), layout)


def lay_out(tensor, layout):
    """The same tensor with other strides."""
    if layout == "transposed" and tensor.dim() > 1:
        return (
            tensor.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)
        )
    if layout == "strided" and tensor.dim():
        wide = torch.zeros([*tensor.shape[:-1], 2 * tensor.shape[-1]], dtype=tensor.dtype)
        wide[..., ::2] = tensor
        return wide[..., ::2]
    if layout == "conjugate" and tensor.is_complex():
        return tensor.conj().clone().conj()
    return tensor.clone()


def read(tensor):
    name = str(tensor.dtype).partition(".")[2]
    if tensor.is_complex():
        tensor = tensor.resolve_conj()
    return (tensor.double() if name in numpy_operations.HALVES else tensor).numpy(), name


def call(hvd, spec, process_set, members, place, tensors):
    """Start the collective of each tensor, or of all as a group, and wait for them."""
    kind, op = spec["operation"], getattr(hvd, spec.get("op", "Sum"))
    common = {"process_set": process_set}
    if spec.get("name"):
        common["name"] = spec["name"]
    scales = {name: spec[name] for name in ("prescale_factor", "postscale_factor") if name in spec}
    grouped = spec.get("grouped")
    # one name for each of several tensors
    each = [
        {**common, "name": f"{spec['name']}.{i}"} if spec.get("name") else common
        for i in range(len(tensors))
    ]
    suffix = "_async_" if spec.get("in_place") else "_async"
    function = getattr(hvd, ("grouped_" if grouped else "") + kind + suffix)
    if kind == "allreduce" or kind == "reducescatter":
        options = {"op": op, **scales}
        if grouped:
            return hvd.synchronize(function(tensors, **common, **options))
        handles = [function(t, **own, **options) for t, own in zip(tensors, each)]
    elif kind == "allgather":
        if grouped:
            return hvd.synchronize(function(tensors, **common))
        handles = [function(t, **own) for t, own in zip(tensors, each)]
    elif kind == "broadcast":
        root = members[spec["root"] % len(members)]
        handles = [function(t, root, **own) for t, own in zip(tensors, each)]
    elif kind == "alltoall":
        splits = spec.get("splits")
        own_splits = None if splits is None else splits[place][: len(members)]
        handles = [function(t, splits=own_splits, **own) for t, own in zip(tensors, each)]
        return [hvd.synchronize(handle)[0] for handle in handles]
    return [hvd.synchronize(handle) for handle in handles]


def without_a_backward_pass(world):
    """Results of operations whose autograd functions raise an error."""
    from horovod.torch import mpi_ops

    hvd = world.hvd
    calls = [
        partial(hvd.allreduce, op=hvd.Sum),
        hvd.allgather,
        partial(hvd.broadcast, root_rank=0),
        hvd.alltoall,
        partial(hvd.reducescatter, op=hvd.Sum),
    ]
    groups = [
        partial(hvd.grouped_allreduce, op=hvd.Sum),
        hvd.grouped_allgather,
        partial(hvd.grouped_reducescatter, op=hvd.Sum),
    ]
    calls += [lambda x, group=group: group([x])[0] for group in groups]
    constant = torch.ones(world.size)
    found = []
    with contextlib.ExitStack() as patches:
        for each in vars(mpi_ops).values():
            if isinstance(each, type) and issubclass(each, torch.autograd.Function):
                patches.enter_context(unittest.mock.patch.object(each, "apply"))
                each.apply.side_effect = AssertionError
        for one in calls:
            found.append(one(constant).sum().item())
            with torch.no_grad():
                found.append(one(constant.clone().requires_grad_()).sum().item())
    return found


def mean_of_a_large_integer(world, number):
    return world.hvd.allreduce(torch.tensor(number)).item()


def means_of_large_halves(world):
    """Means that float16 has, of numbers whose sum it has not."""
    hvd, x = world.hvd, torch.full((world.size, 2), 40000.0, dtype=torch.float16)
    found = [hvd.allreduce(x), hvd.reducescatter(x), *hvd.grouped_reducescatter([x, x])]
    return torch.cat(found).unique().tolist()


def scaled_integers(world):
    """Integers by a factor whose inverse is no divisor."""
    least = torch.tensor([torch.iinfo(torch.int64).min, 5])
    ends = world.hvd.allreduce(least, op=world.hvd.Min, prescale_factor=-1.0)
    zeros = torch.zeros(2, dtype=torch.int32)
    world.hvd.allreduce(zeros, op=world.hvd.Sum, prescale_factor=float("inf"))
    return ends[1].item()


def join_during_an_operation(world):
    """Sums of an operation that some ranks have begun before they join, and others begin then."""
    found = []
    for _ in range(3):  # new, and cached
        if world.rank == 0:
            time.sleep(0.3)
        x = torch.full((3,), world.rank + 1.0)
        handle = world.hvd.allreduce_async(x, op=world.hvd.Sum, name="before joining")
        world.hvd.join()
        found += world.hvd.synchronize(handle).tolist()
    return found


def set_after_a_removed_one(world):
    """A sum in a process set that is made after another, of other ranks, is removed."""
    hvd, sums = world.hvd, []
    for members in (range(world.size - 1), range(1, world.size)):
        made = world.process_set(members)
        if world.rank in members:
            sums.append(hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=made).item())
        world.remove_process_set(members)
    return sums


def counted(world):
    """How many operations go on: none, after each call."""
    from horovod.torch import mpi_ops

    return len(mpi_ops._handle_map)


def broadcast_bytes(world, count):
    """Broadcast that many bytes, and look at those at the ends and in the middle."""
    data = torch.full((count,), world.rank + 1, dtype=torch.uint8)
    world.hvd.broadcast_(data, root_rank=0, name="many bytes")
    places = [0, 7, count // 2 - 1, count // 2, count - 8, count - 1]
    return "" if all(data[place] == 1 for place in places) else "not all bytes came"
