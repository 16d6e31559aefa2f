"""Run by each rank: a collective of drawn tensors of TensorFlow."""

import functools

import numpy_operations
import tensorflow as tf


def perform(world, **spec):
    """Perform a collective as ``spec`` says; return what is wrong."""
    members = numpy_operations.members_of(spec, world.size)
    process_set = world.process_set(members)
    if world.rank not in members:
        return ""
    place = members.index(world.rank)
    start = functools.partial(call, world.tensorflow, spec, process_set, members, place)
    if spec.get("within"):
        start = tf.function(start)
    return numpy_operations.perform(spec, place, len(members), make, start, read)


def make(case, array, layout):
    return tf.cast(tf.constant(array), case["dtype"])


def read(tensor):
    name = tensor.dtype.name
    return tf.cast(tensor, "float64" if name in numpy_operations.HALVES else name).numpy(), name


def call(hvd, spec, process_set, members, place, tensors):
    """Call the operation for each tensor, or for all as a group."""
    kind, options = spec["operation"], {"process_set": process_set}
    for name in ("prescale_factor", "postscale_factor"):
        if name in spec:
            options[name] = spec[name]
    if kind in ("allreduce", "reducescatter"):
        options["op"] = getattr(hvd, spec["op"])
    if kind == "broadcast":
        options["root_rank"] = members[spec["root"] % len(members)]
    if kind == "alltoall" and "splits" in spec:
        options["splits"] = tf.constant(spec["splits"][place][: len(members)], tf.int32)
    if spec.get("grouped"):
        return getattr(hvd, f"grouped_{kind}")(tensors, **options)
    results = [getattr(hvd, kind)(tensor, **options) for tensor in tensors]
    # with the splits that others gave
    return [each[0] if isinstance(each, (list, tuple)) else each for each in results]
