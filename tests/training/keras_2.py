"""Keras 2 on each rank: prints what trains as one process would."""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import horovod.tensorflow.keras as hvd  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

STEPS = 3
hvd.init()
keras = tf.keras
random = np.random.RandomState(0)
whole = random.randn(12, 4).astype("float32"), random.randn(12, 1).astype("float32")
mine = [each[hvd.rank() :: hvd.size()] for each in whole]


def network(**last):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(3, input_shape=(4,)), keras.layers.Dense(1, **last)]
    return keras.Sequential(layers)


def sgd(rate=0.1):
    return keras.optimizers.SGD(rate, momentum=0.9)


def step_of(model, optimizer, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return {"loss": loss}


def loop(optimizer, decorate=tf.function, data=mine, steps=STEPS):
    model = network()
    optimizer.build(model.trainable_variables)
    step = decorate(lambda: step_of(model, optimizer, *data)["loss"])
    for _ in range(steps):
        step()
    return model


def fit(model, optimizer, callbacks=(), data=mine, **settings):
    model.compile(hvd.DistributedOptimizer(optimizer, **settings), "mse")
    options = {"batch_size": len(data[0]), "epochs": STEPS, "shuffle": False, "verbose": 0}
    model.fit(*data, callbacks=list(callbacks), **options)
    return model


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def call(self, x):
        return self.inner(x)

    def train_step(self, data):
        return step_of(self, self.optimizer, *data)


def saved():
    model = fit(network(), sgd())
    file = pathlib.Path(sys.argv[1], f"{hvd.rank()}.keras")
    model.save(file)
    return keras.models.load_model(file), hvd.load_model(str(file))


def overflow():
    """Weights and scale after one rank's overflow."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    model = network(dtype="float32")
    x, y = mine[0].copy(), mine[1]
    if hvd.rank() == 1:
        x[0] = 1e6
    fit(model, keras.optimizers.SGD(0.1), data=(x, y))
    keras.mixed_precision.set_global_policy("float32")
    return [
        float(model.optimizer.loss_scale),
        *np.concatenate([*map(np.ravel, model.get_weights())]),
    ]


def used(wrap, x, y, optimizer):
    """Weights and steps of an optimizer that is wrapped after two steps."""
    model = network()
    model.compile(optimizer, "mse")
    for _ in range(2):
        model.train_on_batch(*whole)
    model.compile(wrap(optimizer), "mse")
    for _ in range(2):
        model.train_on_batch(x, y)
    return [*model.get_weights(), int(optimizer.iterations)]


def refused(*arguments):
    try:
        hvd.DistributedOptimizer(*arguments)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def show(name, right):
    print(f"{name}: {right}\n", end="", flush=True)


def same(*models):
    return all(
        np.allclose(ours, theirs, atol=1e-5)
        for model in models
        for ours, theirs in zip(model.get_weights(), reference)
    )


reference = loop(sgd(), data=whole).get_weights()
show("loop", same(loop(hvd.DistributedOptimizer(sgd()))))
show("eagerly", same(loop(hvd.DistributedOptimizer(sgd()), lambda step: step)))
passes = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
show("passes", same(loop(hvd.DistributedOptimizer(sgd(), **passes), steps=2 * STEPS)))
show("fit", same(fit(network(), sgd())))
show("sum", same(fit(network(), sgd(0.1 / hvd.size()), op=hvd.Sum)))
own = Own()
own.build((None, 4))
show("train_step", same(fit(own, sgd())))
show("saved", same(*saved()))
warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1, warmup_epochs=2)
warmed = fit(network(), sgd(), callbacks=[warmup])
show("warmup", np.isclose(float(warmed.optimizer.learning_rate), 0.1))
for optimizers in (keras.optimizers, keras.optimizers.legacy):
    alone = used(lambda plain: plain, *whole, optimizers.Adam(0.1))
    wrapped = used(hvd.DistributedOptimizer, *mine, optimizers.Adam(0.1))
    alike = (np.allclose(ours, theirs, atol=1e-5) for ours, theirs in zip(wrapped, alone))
    show("wrapped after steps", all(alike))
# which no configuration has
model = fit(network(), keras.optimizers.legacy.SGD(lambda: 0.1, momentum=0.9))
show("rate of a function", same(model))
show("refused", "distributed already" in refused(model.optimizer))
scaled = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1))
show("refused", "LossScaleOptimizer(hvd.DistributedOptimizer" in refused(scaled))
result = hvd.allgather(tf.constant([overflow()])).numpy()
show("overflow", len(np.unique(result, axis=0)) == 1 and result[0, 0] == 2.0 ** (15 - STEPS))
