"""Collectives of drawn tensors: what each rank gives, and what NumPy makes of that."""

import numpy as np

REDUCTIONS = {
    "Sum": lambda parts: sum(parts[1:], parts[0]),
    "Average": lambda parts: sum(parts[1:], parts[0]),
    "Min": lambda parts: np.minimum.reduce(parts),
    "Max": lambda parts: np.maximum.reduce(parts),
    "Product": lambda parts: np.multiply.reduce(parts),
}
#: Types whose small integers NumPy holds in float64.
HALVES = ("float16", "bfloat16")
EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def perform(world, spec, make, call, read):
    """Perform the collective of a spec; return what is wrong.

    Args:
        make: gives a tensor for a case and an array, with the layout of a rank.
        call: gives the results for a spec, a process set, its ranks, the place of this one among
            them, and tensors.
        read: gives the array of a tensor, and the name of its type.
    """
    members = spec.get("members") or list(range(world.size))
    process_set = world.process_set(members)
    if world.rank not in members:
        return ""
    place, count = members.index(world.rank), len(members)
    cases, parts = spec["tensors"], []
    for index, case in enumerate(cases):
        seeds = (spec["seed"] + 100 * index + rank for rank in range(count))
        parts.append([draw(case, seed) for seed in seeds])
    tensors = [
        make(case, arrays[place], case["layouts"][place]) for case, arrays in zip(cases, parts)
    ]
    results = call(spec, process_set, members, place, tensors)
    wrong = []
    for case, arrays, tensor, result in zip(cases, parts, tensors, results):
        wrong += compare(*read(result), expected(spec, case, arrays, place), case["dtype"], spec)
        if spec.get("in_place") and result is not tensor:
            wrong.append("the result is another tensor")
        if not spec.get("in_place") and not np.array_equal(read(tensor)[0], arrays[place]):
            wrong.append("the input was changed")
    return "; ".join(wrong)


def draw(case, seed):
    """An array of small integers, whose sums and products are exact in every type."""
    shape, dtype = case["shape"], case["dtype"]
    if "rows" in case and shape:
        shape = [case["rows"][seed % 100 % len(case["rows"])], *shape[1:]]
    numbers = np.asarray(np.random.RandomState(seed).randint(-4, 5, shape))
    if dtype == "bool":
        return numbers > 0
    if dtype.startswith("uint"):
        numbers = np.abs(numbers)
    if dtype.startswith("complex"):
        numbers = numbers + 1j * (numbers - 1)
    return numbers.astype("float64" if dtype in HALVES else dtype)


def expected(spec, case, parts, place):
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


def compare(found, found_dtype, wanted, dtype, spec):
    if found_dtype != dtype:
        return [f"the type is {found_dtype} for {dtype}"]
    if found.shape != wanted.shape:
        return [f"the shape is {found.shape} for {wanted.shape}"]
    # sums are exact; a mean over three ranks, and of what is scaled, is rounded
    rounded = dtype.startswith("complex") or spec.get("op") == "Average" and "float" in dtype
    epsilon = EPSILONS.get(dtype) or (np.finfo(dtype).eps if rounded else 0.0)
    allowed = 4 * epsilon * np.abs(wanted).max(initial=1.0) if rounded else 0.0
    difference = np.abs(found.astype(complex) - wanted.astype(complex)).max(initial=0.0)
    return [] if difference <= allowed else [f"off by {difference}"]
