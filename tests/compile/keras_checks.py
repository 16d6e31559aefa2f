"""Run Horovod's Keras code without its compiled plugin; print what each check came to, as JSON.

The operations are stubs, as on the first of two ranks where the other's numbers are all zero
and where broadcasts bring sevens.

Usage: keras_checks.py horovod.keras|horovod.tensorflow.keras DIRECTORY
"""

import importlib
import json
import os
import pathlib
import sys
import traceback
import types

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod
import horovod.common.process_sets
import numpy as np
import tensorflow as tf
from horovod.common.util import get_ext_suffix

#: horovod.keras lacks some of what horovod.tensorflow.keras has.
OF_TENSORFLOW = sys.argv[1] == "horovod.tensorflow.keras"
KERAS_3 = hasattr(tf.keras.optimizers.Optimizer, "stateless_apply")
FROM_ROOT = 7
calls = tf.Variable(0)


def known_to_horovod(tensor):
    """Pass a tensor on by an operation that XLA cannot compile, like Horovod's own."""
    if tensor.dtype == tf.uint32:
        raise TypeError("Horovod has no operations on uint32")
    calls.assign_add(1)
    out = tf.py_function(lambda t: t, [tensor], tensor.dtype)
    out.set_shape(tensor.shape)
    return out


def stub_of_mpi_ops():
    """Stands for horovod.tensorflow.mpi_ops, which loads the plugin."""
    stub = types.ModuleType("horovod.tensorflow.mpi_ops")

    class ProcessSet:
        process_set_id = registered_id = 0

        def check_registered(self):
            pass

        def size(self):
            return 2

        def included(self):
            return True

    def reduce(tensor, op=1, prescale_factor=1.0, postscale_factor=1.0, **keywords):
        share = 0.5 if op == stub.Average else 1.0
        return known_to_horovod(tensor) * (share * prescale_factor * postscale_factor)

    def grouped(tensors, **keywords):
        return [reduce(tensor, **keywords) for tensor in tensors]

    def gather(tensor, **keywords):
        # of what is no number to reduce, such as a count or an object, both ranks have the same
        other = tf.zeros_like(tensor) if tensor.dtype.is_floating else tensor
        return tf.concat([known_to_horovod(tensor), other], 0)

    def broadcast(tensor, root_rank, **keywords):
        tensor = known_to_horovod(tf.convert_to_tensor(tensor))
        return tf.ones_like(tensor) * tf.cast(FROM_ROOT, tensor.dtype)

    def missing(name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **keywords: sys.exit(f"no stub of mpi_ops.{name}")

    vars(stub).update(
        __getattr__=missing,
        Average=0,
        Sum=1,
        ProcessSet=ProcessSet,
        global_process_set=ProcessSet(),
        handle_average_backwards_compatibility=lambda op, average: 0 if op is None else op,
        rocm_built=lambda: False,
        rank=lambda: 0,
        size=lambda: 2,
        _executing_eagerly=tf.executing_eagerly,
        _allreduce=reduce,
        _grouped_allreduce=grouped,
        allgather=gather,
        broadcast=broadcast,
    )
    return stub


# horovod.tensorflow looks whether the plugin is there
plugin = "mpi_lib" + get_ext_suffix()
(pathlib.Path(horovod.__file__).parent / "tensorflow" / plugin).touch()
sys.modules["horovod.tensorflow.mpi_ops"] = stub_of_mpi_ops()
horovod.common.process_sets.ProcessSet.size = lambda self: 2
hvd = importlib.import_module(sys.argv[1])
keras = hvd.keras
X = np.arange(8, dtype="float32").reshape(4, 2)
Y = np.ones((4, 1), dtype="float32")


def linear(optimizer, **options):
    """A model of two weights, both 1."""
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.layers.Input((2,)), layer])
    model.compile(optimizer, loss=keras.losses.MeanSquaredError(), **options)
    return model


def fit(model, epochs=1, callbacks=(), **options):
    """Train with one batch per epoch."""
    options = {"batch_size": 4, "shuffle": False, "verbose": 0, **options}
    return model.fit(X, Y, epochs=epochs, callbacks=list(callbacks), **options)


def moved(model):
    """How far the weights are from where they began."""
    return [float(w) for w in (1 - model.get_weights()[0][:, 0])]


def plain_step():
    """How far one step of plain SGD moves the weights."""
    model = linear(keras.optimizers.SGD(0.001))
    fit(model)
    return np.array(moved(model))


def near(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def check_gradients_are_reduced():
    model = linear(hvd.DistributedOptimizer(keras.optimizers.SGD(0.001)))
    before = int(calls)
    fit(model)
    assert int(calls) > before
    near(np.array(moved(model)) * 2, plain_step())


def check_gradients_are_summed():
    model = linear(hvd.DistributedOptimizer(keras.optimizers.SGD(0.001), op=hvd.Sum))
    fit(model)
    near(moved(model), plain_step())


def check_a_training_loop_of_ones_own():
    if KERAS_3:
        variable = tf.Variable([1.0, 2.0])
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
        optimizer.apply_gradients([(tf.constant([2.0, 4.0]), variable)])
        near(variable.numpy(), [0.0, 0.0])


def check_a_tape_and_a_broadcast_take_variables_of_a_model():
    import horovod.tensorflow

    model = linear("sgd")
    found = []
    for local in (False, True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(X))
        tape = horovod.tensorflow.DistributedGradientTape(tape, scale_local_gradients=False)
        if local:
            tape.register_local_source(model.trainable_variables[0])
        (gradient,) = tape.gradient(loss, model.trainable_variables)
        found.append(gradient.numpy()[:, 0])
    near(found[1], X.sum(axis=0))
    near(found[0], X.sum(axis=0) / 2)
    horovod.tensorflow.broadcast_variables(model.variables, root_rank=0)
    near(model.get_weights()[0], np.full((2, 1), FROM_ROOT))


def check_passes_are_accumulated():
    for average, share in ((False, 1.0), (True, 0.5)) if OF_TENSORFLOW else ():
        options = {"backward_passes_per_step": 2, "average_aggregated_gradients": average}
        model = linear(hvd.DistributedOptimizer(keras.optimizers.SGD(0.001), **options))
        # two equal gradients come to one, halved by the other rank's zeros
        for expected in ([0, 0], plain_step() * share, plain_step() * share):
            fit(model)
            near(moved(model), expected)
        assert int(model.optimizer.iterations) == 1


def embedding(optimizer, **options):
    """A model with a sparse gradient, a seed and two weights of the same name."""
    layers = keras.layers
    stack = [layers.Input((2,)), layers.Embedding(8, 3), layers.Flatten(), layers.Dropout(0.5)]
    model = keras.Sequential([*stack, layers.Dense(4), layers.Dense(1)])
    model.compile(optimizer, loss="mse", metrics=["mae"], **options)
    return model


def check_all_variables_are_broadcast():
    model = embedding(hvd.DistributedOptimizer(keras.optimizers.Adam()))
    fit(model, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    for weight in model.get_weights():
        near(weight, np.full_like(weight, FROM_ROOT))
    state = model.optimizer.variables
    for variable in state() if callable(state) else state:
        near(variable.numpy(), np.full_like(variable.numpy(), FROM_ROOT))


def check_local_variables_are_not_broadcast():
    model = embedding(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)))
    local = model.layers[-1]
    before = local.get_weights()[0]
    variables = list(local.trainable_weights)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=variables)
    fit(model, callbacks=[callback])
    near(local.get_weights()[0], before)


def check_local_gradients_are_not_reduced():
    for scaled, share in ((True, 0.5), (False, 1.0)) if OF_TENSORFLOW else ():
        inner = keras.optimizers.SGD(0.001)
        optimizer = hvd.DistributedOptimizer(inner, scale_local_gradients=scaled)
        model = linear(optimizer)
        optimizer.register_local_var(model.trainable_weights[0])
        before = int(calls)
        fit(model)
        assert int(calls) == before
        near(moved(model), plain_step() * share)


def check_partly_distributed():
    if not OF_TENSORFLOW:
        model = linear("sgd")
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(0.001), local_layers=model.layers[-1], scale_local_gradients=False
        )
        model.compile(optimizer, loss="mse")
        fit(model)
        near(moved(model), plain_step())


def check_groups():
    reference = None
    for groups in (None, 1, 2, "lists"):
        model = embedding("sgd")
        if groups == "lists":
            groups = [model.layers[-1].trainable_weights, model.layers[-2].trainable_weights]
        keras.utils.set_random_seed(1)
        model.set_weights([np.full_like(weight, 0.5) for weight in model.get_weights()])
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.01), groups=groups, sparse_as_dense=groups is not None
        )
        model.layers[2].rate = 0.0
        model.compile(optimizer, loss="mse")
        fit(model)
        reference = reference or model.get_weights()
        for got, expected in zip(model.get_weights(), reference):
            near(got, expected)
            assert not np.all(got == 0.5)


def check_metrics_are_averaged():
    seen = []

    class Before(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(dict(logs))

    model = embedding(hvd.DistributedOptimizer(keras.optimizers.Adam()))
    callbacks = [Before(), hvd.callbacks.MetricAverageCallback()]
    history = fit(model, callbacks=callbacks, validation_data=(X, Y)).history
    assert sorted(history) == sorted(seen[0]), history
    for name, (value,) in history.items():
        near(value * 2, seen[0][name])


def check_the_learning_rate_follows_a_schedule():
    model = linear(hvd.DistributedOptimizer(keras.optimizers.SGD(0.008)))
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.008, 0.5, momentum_correction=False)
    near(fit(model, epochs=3, callbacks=[schedule]).history["lr"], [0.008, 0.004, 0.002])


def check_the_learning_rate_warms_up():
    model = linear(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)))
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2, verbose=1)
    rates = fit(model, epochs=3, callbacks=[warmup], batch_size=2).history["lr"]
    near(rates, [0.075, 0.1, 0.1])


def check_momentum_is_corrected():
    """v = 0.9 * 0.5 * v - 0.5 * rate * gradient, when the rate has been halved."""
    if KERAS_3:
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.002, momentum=0.9))
        model = linear(optimizer)
        schedule = hvd.callbacks.LearningRateScheduleCallback(0.002, 0.5)
        fit(model, epochs=2, callbacks=[schedule])
        plain = linear(keras.optimizers.SGD(0.002 * 0.5))
        fit(plain)
        first = np.array(moved(plain))
        fit(plain)
        # the second gradient, from where the first step led, with half the rate
        second = 0.9 * 0.5 * first + (np.array(moved(plain)) - first) * 0.5
        near(moved(model), first + second)
        near(float(optimizer.momentum), 0.9)


def check_saved_and_loaded(suffix):
    file = os.path.join(sys.argv[2], "model" + suffix)
    model = linear(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    fit(model, epochs=3)
    model.save(file)
    plain = keras.models.load_model(file)
    assert type(plain.optimizer).__name__ == "Adam"
    before = int(calls)
    if suffix == ".keras" or not KERAS_3:
        # Keras 3 itself cannot train a Sequential model that comes from HDF5
        fit(plain)
        assert int(calls) == before
    again = hvd.load_model(file)
    assert int(again.optimizer.iterations) == 3
    near(again.get_weights()[0], model.get_weights()[0])
    fit(again)
    assert int(calls) > before


def check_saved_and_loaded_as_h5():
    check_saved_and_loaded(".h5")


def check_saved_and_loaded_as_keras():
    if KERAS_3:
        check_saved_and_loaded(".keras")


def check_the_loss_is_scaled():
    if KERAS_3:
        inner = keras.optimizers.SGD(0.001)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(inner))
        model = linear(optimizer)
        fit(model)
        near(np.array(moved(model)) * 2, plain_step())


def check_xla_is_not_used():
    if KERAS_3:
        model = linear(hvd.DistributedOptimizer(keras.optimizers.SGD(0.001)), jit_compile=True)
        fit(model, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
        assert not model.jit_compile


if __name__ == "__main__":
    results = {}
    for name, check in list(globals().items()):
        if name.startswith("check_") and not check.__code__.co_argcount:
            try:
                check()
                results[name] = ""
            except BaseException:
                results[name] = traceback.format_exc()
    print(json.dumps({"keras": getattr(keras, "__version__", tf.__version__), "results": results}))
