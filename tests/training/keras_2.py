"""Keras 2 on each rank: prints what trains as one process would."""

import copy
import os
import pathlib
import pickle
import sys
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import horovod.tensorflow  # noqa: E402
import horovod.tensorflow.keras as hvd  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

STEPS = 3
PASSES = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
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


def step_of(model, optimizer, x, y, wrap=lambda tape: tape):
    with wrap(tf.GradientTape()) as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return {"loss": loss}


def loop(optimizer, decorate=tf.function, data=mine, steps=STEPS, **options):
    model = network()
    if hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)
    step = decorate(lambda: step_of(model, optimizer, *data, **options)["loss"])
    for _ in range(steps):
        step()
    return model


def fit(model, optimizer, data=mine, **settings):
    model.compile(hvd.DistributedOptimizer(optimizer, **settings), "mse")
    return trained(model, data=data)


def trained(model, data=mine, epochs=STEPS, **options):
    options = {"batch_size": len(data[0]), "shuffle": False, "verbose": 0, **options}
    model.fit(*data, epochs=epochs, **options)
    return model


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def call(self, x):
        return self.inner(x)

    def train_step(self, data):
        return step_of(self, self.optimizer, *data)


def passes_of_a_graph():
    """Value and count of steps, after four passes that are two steps."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.keras.backend.set_session(session)
        variable = tf.Variable([0.0])
        optimizer = hvd.DistributedOptimizer(keras.optimizers.legacy.Adam(0.1), **PASSES)
        unused = tf.Variable([0.0])
        reduced = optimizer._allreduce([None, tf.constant([1.0])], [unused, variable])
        apply = optimizer.apply_gradients([(reduced[1], variable)])
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(4):
            session.run(apply)
        found = session.run([variable.read_value(), optimizer.iterations.read_value()])
    keras.backend.clear_session()
    return found


def passes_without_gradients(decorate):
    """Three variables after two steps: without gradients, with them, and with some passes'."""
    variables = [tf.Variable(1.0) for _ in range(3)]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **PASSES)
    optimizer.build(variables)

    @decorate
    def step(first):
        with tf.GradientTape() as tape:
            loss = variables[1] * (hvd.rank() + 1) + (variables[2] if first else 0.0)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    for first in (True, False, True, False):
        step(first)
    return [float(each) for each in variables]


def normalized(kind, samples, policy="float32", data=whole, **options):
    """Trained with gradients of the sum of all samples' losses, of which this rank has some."""
    keras.mixed_precision.set_global_policy(policy)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), kind(), keras.layers.Dense(1, dtype="float32")])
    keras.mixed_precision.set_global_policy("float32")
    optimizer = sgd()
    x, y = (each[samples] for each in data)
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / len(data[0])
        if options:
            tape = horovod.tensorflow.DistributedGradientTape(tape, **options)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return model


def is_normalized(first, policy="float32", **tolerance):
    """Whether batch normalization is that of all samples, of which rank 0 has so many."""
    samples = slice(first) if hvd.rank() == 0 else slice(first, None)
    kind = horovod.tensorflow.SyncBatchNormalization
    ours = normalized(kind, samples, policy, op=horovod.tensorflow.Sum)
    one = normalized(keras.layers.BatchNormalization, slice(None), policy).get_weights()
    return same(ours, wanted=one, **tolerance)


def from_rank_0(name, save):
    """The path of what rank 0 saves."""
    file = str(pathlib.Path(sys.argv[1], name))
    if hvd.rank() == 0:
        save(file)
    hvd.allgather([0])
    return file


def saved(name, **options):
    """By Keras and wrapped, and by Horovod; a step before the last."""
    file = from_rank_0(name, unfinished(**options).save)
    plain, distributed = keras.models.load_model(file), hvd.load_model(file)
    hvd.DistributedOptimizer(plain.optimizer)
    return [trained(each, epochs=1) for each in (plain, distributed)]


def from_a_folder():
    """A SavedModel, of whose optimizer Keras restores no state."""
    file = from_rank_0("folder", fit(network(), sgd()).save)
    return keras.models.load_model(file), hvd.load_model(file)


def unfinished(kind=keras.optimizers.SGD, wrap=hvd.DistributedOptimizer, data=mine):
    """A model that has been trained but for the last step."""
    model = network()
    model.compile(wrap(kind(0.1, momentum=0.9)), "mse")
    return trained(model, data=data, epochs=STEPS - 1)


def from_a_checkpoint():
    model = unfinished()
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    file = from_rank_0("checkpoint", checkpoint.write)
    again, optimizer = network(), hvd.DistributedOptimizer(sgd())
    optimizer.build(again.trainable_variables)
    restored = tf.train.Checkpoint(model=again, optimizer=optimizer).read(file)
    restored.assert_existing_objects_matched()
    again.compile(optimizer, "mse")
    return trained(again, epochs=1)


def copies():
    """Of a model: their optimizers are not distributed, which fit() warns of, and can be."""
    model = unfinished()
    for make in (copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
        made = make(model)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
            trained(make(model), epochs=1, callbacks=start)
            count = sum("is not distributed" in str(each.message) for each in told)
            hvd.DistributedOptimizer(made.optimizer)
            trained(made, epochs=1, callbacks=start)
        assert count == sum("is not distributed" in str(each.message) for each in told) == 1, told
        yield made


def momentum_after(optimizer, gathered):
    """What an optimizer has gathered, and the rate that is logged, when 0.1 is halved."""
    model = network()
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    for each in gathered():
        each.assign(tf.fill(each.shape, 8.0))
    callback, logs = hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5), {}
    callback.set_model(model)
    callback.on_epoch_begin(1)
    callback.on_batch_begin(0)
    callback.on_epoch_end(1, logs)
    assert type(logs["lr"]) is float and np.isclose(logs["lr"], 0.05), logs
    return {float(value) for each in gathered() for value in np.ravel(each)}


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


def eager_overflow():
    """Weights after one rank's overflow in a loop, and a step that all ranks take."""
    optimizer = keras.mixed_precision.LossScaleOptimizer(hvd.DistributedOptimizer(sgd()))
    model = network()
    for factor in (np.inf if hvd.rank() else 1.0, 1.0):
        with tf.GradientTape() as tape:
            loss = (
                optimizer.get_scaled_loss(tf.reduce_mean((model(mine[0]) - mine[1]) ** 2)) * factor
            )
        weights = model.trainable_variables
        grads = optimizer.get_unscaled_gradients(tape.gradient(loss, weights))
        optimizer.apply_gradients(zip(grads, weights))
    return model


def weights_of_rank_0(kind):
    """By the callback, before the first batch of each fit()."""
    model = network()
    model.compile(hvd.DistributedOptimizer(kind(0.1, momentum=0.9)), "mse")
    start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    for epochs in (1, STEPS - 1):
        if hvd.rank():
            model.set_weights([2 * each for each in model.get_weights()])
        trained(model, epochs=epochs, callbacks=start)
    return model


def state_of_rank_0(kind):
    """Of an elastic job, which a new worker has not trained in: the optimizer's and the scale."""
    model = network()
    optimizer = keras.mixed_precision.LossScaleOptimizer(kind(0.1, momentum=0.9))
    model.compile(optimizer, "mse")
    if hvd.rank() == 0:
        for _ in range(2):
            model.train_on_batch(*whole)
        optimizer._loss_scale.current_loss_scale.assign(8.0)
    hvd.elastic.KerasState(model).sync()
    sums = [float(tf.reduce_sum(tf.cast(each, tf.float32))) for each in optimizer.variables()]
    scale = [float(optimizer.loss_scale), float(optimizer.dynamic_counter)]
    return hvd.allgather(tf.constant([[*sums, *scale]])).numpy()


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


def message(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        return str(error)
    return ""


def show(name, right):
    print(f"{name}: {right}\n", end="", flush=True)


def same(*models, wanted=None, atol=1e-5):
    return all(
        np.allclose(ours, theirs, atol=atol)
        for model in models
        for ours, theirs in zip(model.get_weights(), reference if wanted is None else wanted)
    )


reference = loop(sgd(), data=whole).get_weights()
show("loop", same(loop(hvd.DistributedOptimizer(sgd()))))
show("eagerly", same(loop(hvd.DistributedOptimizer(sgd()), lambda step: step)))
# whose corrections count the steps
for optimizers in (keras.optimizers, keras.optimizers.legacy):
    wanted = loop(optimizers.Adam(0.1), data=whole).get_weights()
    for decorate in (tf.function, lambda step: step):
        optimizer = hvd.DistributedOptimizer(optimizers.Adam(0.1), **PASSES)
        model = loop(optimizer, decorate, steps=2 * STEPS)
        show("passes", same(model, wanted=wanted) and int(optimizer.iterations) == STEPS)
value, count = passes_of_a_graph()
# two steps of Adam by equal gradients
show("passes of a graph", np.isclose(value, -0.2).all() and count == 2)
tape = horovod.tensorflow.DistributedGradientTape
show("tape and optimizer", same(loop(hvd.DistributedOptimizer(sgd()), wrap=tape)))
for decorate in (tf.function, lambda step: step):
    show("passes", np.allclose(passes_without_gradients(decorate), [1.0, 0.7, 0.9]))
    optimizer = hvd.DistributedOptimizer(sgd(), op=hvd.Sum)
    told = message(loop, optimizer, decorate, wrap=tape)
    show("refused", "would sum them again: use one of them" in told)
show("fit", same(fit(network(), sgd())))
show("sum", same(fit(network(), sgd(0.1 / hvd.size()), op=hvd.Sum)))
own = Own()
own.build((None, 4))
show("train_step", same(fit(own, sgd())))
for name in ("model.keras", "model.h5"):
    show("saved", same(*saved(name)))
    # without Horovod
    show("saved", same(*saved(name, wrap=lambda optimizer: optimizer, data=whole)))
show("saved", same(*saved("legacy.h5", kind=keras.optimizers.legacy.SGD)))
show("saved", same(*from_a_folder()))
show("checkpoint", same(from_a_checkpoint()))
show("copies", same(*copies()))
show("normalized", is_normalized(5))
show("normalized", is_normalized(0))
show("normalized", is_normalized(5, "mixed_float16", atol=3e-3))
warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1, warmup_epochs=2)
warmed = network()
warmed.compile(hvd.DistributedOptimizer(sgd()), "mse")
trained(warmed, callbacks=[warmup])
show("warmup", np.isclose(float(warmed.optimizer.learning_rate), 0.1))
inner = keras.optimizers.RMSprop(0.1, momentum=0.9)
show("momentum", momentum_after(inner, lambda: inner._momentums) == {4.0})
inner = sgd()
scaled = keras.mixed_precision.LossScaleOptimizer(inner)
show("momentum", momentum_after(scaled, lambda: inner.momentums) == {4.0})
for optimizers in (keras.optimizers, keras.optimizers.legacy):
    alone = used(lambda plain: plain, *whole, optimizers.Adam(0.1))
    wrapped = used(hvd.DistributedOptimizer, *mine, optimizers.Adam(0.1))
    alike = (np.allclose(ours, theirs, atol=1e-5) for ours, theirs in zip(wrapped, alone))
    show("wrapped after steps", all(alike))
    show("weights of rank 0", same(weights_of_rank_0(optimizers.SGD)))
    state = state_of_rank_0(optimizers.SGD)
    show(
        "state of rank 0", len(np.unique(state, axis=0)) == 1 and tuple(state[0, -2:]) == (8.0, 2)
    )
# which no configuration has
model = fit(network(), keras.optimizers.legacy.SGD(lambda: 0.1, momentum=0.9))
show("rate of a function", same(model))
show("refused", "distributed already" in message(hvd.DistributedOptimizer, model.optimizer))
scaled = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1))
told = message(hvd.DistributedOptimizer, scaled)
show("refused", "LossScaleOptimizer(hvd.DistributedOptimizer" in told)
# a step of the whole batch
show("skipped step", same(eager_overflow(), wanted=loop(sgd(), data=whole, steps=1).get_weights()))
result = hvd.allgather(tf.constant([overflow()])).numpy()
show("overflow", len(np.unique(result, axis=0)) == 1 and result[0, 0] == 2.0 ** (15 - STEPS))
