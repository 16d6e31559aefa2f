"""Run by each rank: a collective of drawn tensors of TensorFlow."""

import functools

import numpy_operations
import tensorflow as tf


def perform(world, **spec):
    """Perform a collective as ``spec`` says; return what is wrong."""
    start = functools.partial(call, world.tensorflow)
    if spec["within"]:
        # traced again for each spec, as it is no tensor
        start = tf.function(start)
    return numpy_operations.perform(world, spec, make, start, read)


def mean_of_a_large_integer(world, number):
    return int(world.tensorflow.allreduce(tf.constant(number, tf.int64)))


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
