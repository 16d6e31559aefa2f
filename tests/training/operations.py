"""Run by each rank: a collective of drawn tensors, whose result NumPy knows."""

import numpy as np
import torch

REDUCTIONS = {
    "Sum": lambda parts: sum(parts[1:], parts[0]),
    "Average": lambda parts: sum(parts[1:], parts[0]),
    "Min": lambda parts: np.minimum.reduce(parts),
    "Max": lambda parts: np.maximum.reduce(parts),
    "Product": lambda parts: np.multiply.reduce(parts),
}


def perform(world, mine=None, **spec):
    """Perform a collective as ``spec`` says, changed by ``mine``; return what is wrong."""
    spec = {**spec, **(mine or {})}
    hvd = world.hvd
    members = spec.get("members") or list(range(world.size))
    process_set = world.process_set(members)
    if world.rank not in members:
        return ""
    place = members.index(world.rank)
    wrong = []
    handles = []
    for index, case in enumerate(spec["tensors"]):
        parts = [draw(case, spec["seed"] + 100 * index + rank) for rank in range(len(members))]
        tensor = lay_out(parts[place], case["layouts"][place])
        handles.append((case, parts, tensor))
    tensors = [tensor for _, _, tensor in handles]
    before = [tensor.clone() for tensor in tensors]
    results = call(hvd, spec, tensors, process_set, members, place)
    for (case, parts, tensor), result, own in zip(handles, results, before):
        wanted = expected(spec, case, [each.numpy() for each in map(plain, parts)], place, members)
        wrong += compare(result, wanted, case["dtype"], spec)
        if spec.get("in_place") and result is not tensor:
            wrong.append("the result is another tensor")
        if not spec.get("in_place") and not torch.equal(plain(own), plain(tensor)):
            wrong.append("the input was changed")
    return "; ".join(wrong)


def draw(case, seed):
    """A tensor of small integers, whose sums and products are exact in every type."""
    generator = torch.Generator().manual_seed(seed)
    shape, dtype = case["shape"], getattr(torch, case["dtype"])
    if "rows" in case and shape:
        shape = [case["rows"][seed % 100 % len(case["rows"])], *shape[1:]]
    numbers = torch.randint(-4, 5, shape, generator=generator)
    if dtype == torch.bool:
        return numbers > 0
    if dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64):
        return numbers.abs().to(dtype)
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.flip(0).double()).to(dtype)
    return numbers.to(dtype)


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


def plain(tensor):
    """A tensor that NumPy has a type for, with the same values."""
    tensor = tensor.resolve_conj() if tensor.is_complex() else tensor
    if tensor.dtype in (torch.bfloat16, torch.float16):
        return tensor.double()
    return tensor


def call(hvd, spec, tensors, process_set, members, place):
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


def expected(spec, case, parts, place, members):
    kind = spec["operation"]
    count = len(parts)
    if kind in ("allreduce", "reducescatter"):
        if case["dtype"] == "bool":
            total = (
                np.logical_and.reduce(parts)
                if spec["op"] == "Min"
                else np.logical_or.reduce(parts)
            )
        else:
            factor = spec.get("prescale_factor", 1.0)
            parts = [part * factor if factor != 1 else part for part in parts]
            total = REDUCTIONS[spec["op"]](parts)
        if spec["op"] == "Average":
            integers = np.issubdtype(total.dtype, np.integer)
            # as NCCL, and as C++: towards zero
            total = np.trunc(total / count).astype(total.dtype) if integers else total / count
        if "postscale_factor" in spec:
            total = total * spec["postscale_factor"]
        return np.array_split(total, count)[place] if kind == "reducescatter" else total
    if kind == "allgather":
        return np.concatenate([part.reshape(1) if part.ndim == 0 else part for part in parts])
    if kind == "broadcast":
        return parts[spec["root"] % count]
    splits = spec.get("splits")
    blocks = []
    for rank, part in enumerate(parts):
        if splits is None:
            blocks.append(np.split(part, count)[place])
        else:
            ends = np.cumsum(splits[rank][:count])
            blocks.append(np.split(part, ends)[place])
    return np.concatenate(blocks)


def compare(result, wanted, dtype, spec):
    found = plain(result).numpy()
    if str(result.dtype) != f"torch.{dtype}":
        return [f"the type is {result.dtype} for {dtype}"]
    if found.shape != wanted.shape:
        return [f"the shape is {found.shape} for {wanted.shape}"]
    # sums are exact; a mean over three ranks, and of what is scaled, is rounded
    exact = spec.get("op") != "Average" and not result.dtype.is_complex
    allowed = (
        0.0
        if exact or not (result.dtype.is_floating_point or result.dtype.is_complex)
        else (4 * torch.finfo(result.dtype).eps * np.abs(wanted).max(initial=1.0))
    )
    difference = np.abs(found.astype(complex) - wanted.astype(complex)).max(initial=0.0)
    return [] if difference <= allowed else [f"off by {difference}"]


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
