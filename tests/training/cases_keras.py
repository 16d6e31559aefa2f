"""Keras scripts that must train as one process over the whole batch does.

Each case is a function of a `worlds_keras.World` that trains and returns the model, or values by
name.  `CASES` has all of them by name.
"""

import contextlib
import copy
import inspect
import pathlib
import pickle
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers, optimizers
from ml_dtypes import finfo
from world import SAMPLES, STEPS

CASES = {}


def case(function=None, *, rounding="float64"):
    """Enter a case into the table.

    Args:
        rounding: the coarsest type that it computes with.
    """

    def enter(function):
        function.rounding = rounding
        CASES[function.__name__] = function
        return function

    return enter(function) if function else enter


def names(world):
    return list(CASES)


def run(world, case):
    """Run a case, and return what it ended with as lists of numbers by name."""
    world.begin()
    made = CASES[case](world)
    if isinstance(made, keras.Model):
        made = snapshot(made)
    return {name: np.ravel(value).astype(float).tolist() for name, value in made.items()}


def rounding(world, case):
    """How far 1 is from the next number of the coarsest type that a case computes with."""
    return float(finfo(CASES[case].rounding).eps)


def reference(world, case, order):
    """Run a case in one process that adds up the samples in another order, which 0 leaves."""
    world.order = order
    return run(world, case)


def snapshot(model):
    """Weights of a model, and variables of its optimizer, by their places."""
    found = {f"weight {i}": weight for i, weight in enumerate(model.get_weights())}
    for i, variable in enumerate(model.optimizer.variables):
        found[f"optimizer {i}"] = keras.ops.convert_to_numpy(variable)
    return found


def network(dtype=None):
    """A perceptron, whose last layer may have a type of its own."""
    first, last = layers.Dense(8, activation="tanh"), layers.Dense(3, dtype=dtype)
    return keras.Sequential([keras.Input((5,)), first, last])


def samples(step):
    random = np.random.RandomState(step)
    return random.randn(SAMPLES, 5), random.randn(SAMPLES, 3)


def sgd(**options):
    return optimizers.SGD(0.1, **{"momentum": 0.9, **options})


def fit(world, model, optimizer, steps=STEPS, first=0, wrap=True, compile=(), **options):
    """Train by model.fit(), a step a batch."""
    distributed = world.distribute(optimizer) if wrap else optimizer
    model.compile(distributed, **{"loss": "mse", **dict(compile)})
    x, y, size = world.batches([samples(step) for step in range(first, first + steps)])
    world.share(model)
    settings = {"batch_size": size, "shuffle": False, "verbose": 0, **options}
    model.fit(x, y, **settings)
    return model


def loop(world, model, step, steps=STEPS):
    """Train by ``step(x, y)``."""
    world.share(model)
    for number in range(steps):
        step(*map(tf.constant, world.batch(*samples(number))))
    return model


# Every optimizer of Keras


def options_of(kind):
    """Options of an optimizer, as far as its constructor has them."""
    wanted = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.1, "use_ema": True}
    known = inspect.signature(kind.__init__).parameters
    return {name: value for name, value in wanted.items() if name in known}


def add_optimizers():
    # these have others in them: below
    others = {"Optimizer", "LossScaleOptimizer", "MultiOptimizer"}
    kinds = [
        kind
        for name, kind in vars(optimizers).items()
        if inspect.isclass(kind) and issubclass(kind, optimizers.Optimizer) and name not in others
    ]
    for kind in kinds:

        def train_with(world, kind=kind):
            return fit(world, network(), kind(**options_of(kind)))

        train_with.__name__ = f"optimizer {kind.__name__}"
        case(train_with)


add_optimizers()


# Loops


@case
def fit_eagerly(world):
    return fit(world, network(), sgd(), compile={"run_eagerly": True})


@case
def fit_several_steps_at_once(world):
    return fit(world, network(), sgd(), compile={"steps_per_execution": 2})


@case
def train_on_batches(world):
    model = network()
    model.compile(world.distribute(sgd()), "mse")
    return loop(world, model, lambda x, y: model.train_on_batch(x, y))


@case
def train_step_of_ones_own(world):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def call(self, x):
            return self.inner(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(keras.losses.mean_squared_error(y, self(x)))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    model = Model()
    model.build((None, 5))
    return fit(world, model, sgd())


def mean_squared(model, x, y):
    return tf.reduce_mean(keras.losses.mean_squared_error(y, model(x)))


def by_tape(world, decorate, groups=None):
    """Groups are a number, or a function of the model."""
    model, optimizer = network(), sgd()
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    options = {"groups": groups(model) if callable(groups) else groups}

    @decorate
    def step(x, y):
        with world.tape(tf.GradientTape(), **options) as tape:
            loss = mean_squared(model, x, y)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    return loop(world, model, step)


@case
def tape(world):
    return by_tape(world, tf.function)


@case
def tape_eagerly(world):
    return by_tape(world, lambda step: step)


@case
def tape_with_groups(world):
    return by_tape(world, tf.function, groups=2)


@case
def tape_with_more_groups_than_gradients(world):
    return by_tape(world, tf.function, groups=9)


@case
def tape_with_groups_by_variables(world):
    """Of which two have the same name."""

    def groups(model):
        first, last = model.layers
        return [[first.kernel, last.kernel], [last.bias]]

    return by_tape(world, tf.function, groups=groups)


@case
def tape_of_nested_sources(world):
    model, optimizer = network(), sgd(momentum=0.0)
    model.compile(optimizer, "mse")
    first, last = model.layers

    @tf.function
    def step(x, y):
        with world.tape(tf.GradientTape(persistent=True)) as tape:
            loss = mean_squared(model, x, y)
        sources = {"first": [first.kernel, first.bias], "last": last.kernel}
        gradients = tape.gradient(loss, sources)
        one = tape.gradient(loss, last.bias)
        gradients = [*gradients["first"], gradients["last"], one]
        optimizer.apply(gradients, model.trainable_variables)

    return loop(world, model, step)


@case
def two_tapes_in_one_function(world):
    """As of generator and discriminator."""
    models = [network(), network()]
    both = keras.Sequential([keras.Input((5,)), models[0], layers.Dense(5), models[1]])
    makers = [sgd(), sgd()]
    both.compile(makers[1], "mse")
    for model, optimizer in zip(models, makers):
        optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        with world.tape(tf.GradientTape()) as one, world.tape(tf.GradientTape()) as two:
            losses = [mean_squared(models[0], x, y), tf.reduce_mean(both(x) ** 2)]
        for tape, loss, model, optimizer in zip((one, two), losses, models, makers):
            weights = model.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)

    return loop(world, both, step)


# What stands between gradients and weights


@case
def clipping_by_norm(world):
    return fit(world, network(), sgd(clipnorm=0.05))


@case
def clipping_by_global_norm(world):
    return fit(world, network(), sgd(global_clipnorm=0.05))


@case
def clipping_by_value(world):
    return fit(world, network(), sgd(clipvalue=0.01))


@case
def schedule(world):
    rate = optimizers.schedules.ExponentialDecay(0.1, 2, 0.5, staircase=True)
    return fit(world, network(), optimizers.SGD(rate, momentum=0.9))


@case
def schedule_by_callback(world):
    callback = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    return fit(world, network(), sgd(), callbacks=[callback], epochs=3)


@case
def schedule_by_horovods_callback(world):
    """As Keras's own callback, in fit()."""
    if world.one_process:
        callback = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 * 0.5**epoch)
    else:
        kind = world.hvd.callbacks.LearningRateScheduleCallback
        callback = kind(0.1, 0.5, momentum_correction=False)
    return fit(world, network(), sgd(), callbacks=[callback], epochs=3)


@case
def warmup_by_horovods_callback(world):
    """The rate rises from that of one rank, and what momentum has gathered rises with it."""

    class Warmup(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_begin(self, batch, logs=None):
            done = self.epoch + (batch + 1) / STEPS
            if self.epoch < 2:
                rate = 0.1 / world.size * (1 + done * (world.size - 1) / 2)
                optimizer = self.model.optimizer
                for each in getattr(optimizer, "momentums", ()):
                    each.assign(each * rate / optimizer.learning_rate)
                optimizer.learning_rate = rate

    if world.one_process:
        callback = Warmup()
    else:
        callback = world.hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2)
    return fit(world, network(), sgd(), callbacks=[callback], epochs=3)


@case
def accumulation_by_keras(world):
    return fit(world, network(), sgd(gradient_accumulation_steps=2))


@case
def accumulation_by_horovod(world):
    """Two passes are one step over both batches, for schedules and Adam's correction too."""
    rate = optimizers.schedules.ExponentialDecay(0.05, 1, 0.5, staircase=True)
    model, optimizer = network(), optimizers.Adam(rate)
    if not world.one_process:
        options = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
        return fit(world, model, world.distribute(optimizer, **options), wrap=False)
    for step in range(0, STEPS, 2):
        pairs = zip(samples(step), samples(step + 1))
        x, y = world.batch(*(np.concatenate(pair) for pair in pairs))
        if not step:
            model.compile(optimizer, "mse")
        model.train_on_batch(x, y)
    return model


@case
def groups_by_number(world):
    return fit(world, network(), world.distribute(sgd(), groups=2), wrap=False)


@case
def groups_by_variables(world):
    model = network()
    groups = [[model.layers[0].kernel, model.layers[1].bias], [model.layers[0].bias]]
    return fit(world, model, world.distribute(sgd(), groups=groups), wrap=False)


@case
def predivided(world):
    optimizer = world.distribute(sgd(), gradient_predivide_factor=2.0)
    return fit(world, network(), optimizer, wrap=False)


def compressed(world, name):
    keras.config.set_dtype_policy("float32")
    keras.config.set_floatx("float32")
    options = {} if world.one_process else {"compression": getattr(world.hvd.Compression, name)}
    return fit(world, network(), world.distribute(sgd(), **options), wrap=False)


@case(rounding="float16")
def compression_to_float16(world):
    return compressed(world, "fp16")


@case(rounding="bfloat16")
def compression_to_bfloat16(world):
    return compressed(world, "bf16")


@case
def process_set(world):
    """The last rank trains nothing; the others have the whole batch."""
    members = max(1, world.size - 1)
    model, optimizer = network(), sgd()
    if not world.one_process:
        chosen = world.process_set(range(members))
        optimizer = world.distribute(optimizer, process_set=chosen)
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    world.share(model)
    for step in range(STEPS if world.rank < members else 0):
        x, y = samples(step)
        if not world.one_process:
            x, y = (np.array_split(each, members)[world.rank] for each in (x, y))
        model.train_on_batch(x, y)
    if not world.one_process:
        world.tensorflow.broadcast_variables(model.weights, root_rank=0)
        world.tensorflow.broadcast_variables(optimizer.variables, root_rank=0)
    return model


@case
def sum_by_the_function_for_tensorflow(world):
    """horovod.tensorflow.DistributedOptimizer() hands on what it is given."""
    rate = 0.1 * world.size if world.one_process else 0.1
    optimizer = optimizers.SGD(rate)
    if not world.one_process:
        hvd = world.tensorflow
        optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Sum, groups=2)
    model = fit(world, network(), optimizer, wrap=False, steps=2)
    return {f"{i}": weight for i, weight in enumerate(model.get_weights())}


def embedded(world, **options):
    random = np.random.RandomState(0)
    words, y = random.randint(0, 6, (SAMPLES, 4)), random.randn(SAMPLES, 3)
    model = keras.Sequential(
        [keras.Input((4,)), layers.Embedding(9, 5), layers.Flatten(), layers.Dense(3)]
    )
    model.compile(world.distribute(sgd(), **options), "mse")
    world.share(model)
    for _ in range(STEPS):
        model.train_on_batch(*world.batch(words, y))
    return model


@case
def several_optimizers_in_one(world):
    parts = optimizers.OptimizerMap(sgd(), {".*bias": optimizers.Adam(0.05)})
    return fit(world, network(), optimizers.MultiOptimizer(parts))


@case
def embedding(world):
    return embedded(world)


@case
def embedding_as_dense(world):
    return embedded(world, sparse_as_dense=True)


def normalized(world, far=0.0):
    """Two layers of batch normalization, over the whole batch."""
    if world.one_process:
        kind = layers.BatchNormalization
    else:
        kind = world.tensorflow.SyncBatchNormalization
    model = keras.Sequential(
        [keras.Input((5,)), kind(), layers.Dense(8, activation="tanh"), kind(), layers.Dense(3)]
    )
    model.compile(world.distribute(sgd()), "mse")
    world.share(model)
    for step in range(STEPS):
        x, y = samples(step)
        model.train_on_batch(*world.batch(x + far, y))
    return model


@case
def batch_normalization(world):
    return normalized(world)


@case(rounding="float16")
def batch_normalization_in_mixed_precision(world):
    keras.config.set_dtype_policy("mixed_float16")
    keras.config.set_floatx("float32")
    return normalized(world)


@case
def batch_normalization_far_from_zero(world):
    return normalized(world, far=1000.0)


@case
def batch_normalization_of_uneven_batches(world):
    """Statistics alone, as the mean of uneven means is another one."""
    layer = layers.BatchNormalization()
    if not world.one_process:
        layer = world.tensorflow.SyncBatchNormalization()
    x, _ = samples(0)
    if not world.one_process:
        x = x[:5] if world.rank == 0 else np.array_split(x[5:], world.size - 1)[world.rank - 1]
    layer(x, training=True)
    return {"mean": layer.moving_mean.numpy(), "variance": layer.moving_variance.numpy()}


def unevenly_normalized(world, first):
    """Gradients as well, of the sum of all samples' losses; rank 0 has so many of the samples."""
    kind, options = layers.BatchNormalization, {}
    if not world.one_process:
        kind, options = (world.tensorflow.SyncBatchNormalization, {"op": world.tensorflow.Sum})
    stack = [kind(), layers.Dense(8, activation="tanh"), kind(), layers.Dense(3)]
    model, optimizer = keras.Sequential([keras.Input((5,)), *stack]), sgd()
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    world.share(model)
    for number in range(STEPS):
        x, y = samples(number)
        if world.one_process:
            x, y = world.batch(x, y)
        else:
            ends = np.linspace(first, SAMPLES, world.size).astype(int)
            part = slice([0, *ends][world.rank], ends[world.rank])
            x, y = x[part], y[part]
        with world.tape(tf.GradientTape(), **options) as tape:
            losses = keras.losses.mean_squared_error(y, model(x, training=True))
            loss = tf.reduce_sum(losses) / SAMPLES
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return model


@case
def batch_normalization_trained_with_uneven_batches(world):
    return unevenly_normalized(world, 5)


@case
def batch_normalization_where_a_rank_has_no_samples(world):
    return unevenly_normalized(world, 0)


# Mixed precision


def overflowing(world, optimizer, sample, wrap=True):
    """Train with half precision, where one sample of the second step overflows."""
    keras.config.set_dtype_policy("mixed_float16")
    keras.config.set_floatx("float32")
    model = network(dtype="float32")
    model.compile(world.distribute(optimizer) if wrap else optimizer, "mse")
    world.share(model)
    for step in range(STEPS):
        x, y = (each.astype("float32") for each in samples(step))
        if step == 1:
            x[sample] = 1e6
        model.train_on_batch(*world.batch(x, y))
    return model


@case(rounding="float16")
def overflow_on_one_rank(world):
    """The step is left out, and the scale halved, on all ranks."""
    return overflowing(world, sgd(), -1)


@case(rounding="float16")
def loss_scaling_inside(world):
    """The optimizer that is distributed scales the loss itself."""
    return overflowing(world, optimizers.LossScaleOptimizer(sgd()), 0)


@case(rounding="float16")
def overflow_of_several_optimizers(world):
    """Each of which is distributed."""
    parts = {".*bias": world.distribute(sgd(momentum=0.5))}
    both = optimizers.MultiOptimizer(optimizers.OptimizerMap(world.distribute(sgd()), parts))
    return overflowing(world, both, -1, wrap=False)


# Optimizers that have been used


@case
def wrapped_after_steps(world):
    """Its slots, its count of steps, and what its configuration does not have."""
    model, optimizer = network(), optimizers.AdamW(0.05, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(optimizer, "mse")
    for step in range(2):
        model.train_on_batch(*samples(step))
    return fit(world, model, optimizer, first=2)


@contextlib.contextmanager
def file_of_rank_0(world, name, save):
    """The path of what rank 0 saves, until all ranks have read it."""
    with tempfile.TemporaryDirectory() as folder:
        if not world.one_process:
            folder = world.tensorflow.broadcast_object(folder, root_rank=0)
        file = pathlib.Path(folder, name)
        if world.rank == 0:
            save(file)
        if not world.one_process:
            world.tensorflow.allgather_object("saved")
        yield file
        if not world.one_process:
            world.tensorflow.allgather_object("read")


def trained_on(world, model):
    """Train the rest of the steps, after two, with the optimizer that the model has."""
    optimizer = model.optimizer
    x, y, size = world.batches([samples(step) for step in (2, 3)])
    model.fit(x, y, batch_size=size, shuffle=False, verbose=0)
    assert model.optimizer is optimizer
    return model


def resumed_from(world, name):
    # Keras cannot read "mse" from HDF5
    loss = {"loss": keras.losses.MeanSquaredError()}
    model = fit(world, network(), optimizers.Adam(0.05), steps=2, compile=loss)
    with file_of_rank_0(world, name, model.save) as file:
        load = keras.models.load_model if world.one_process else world.hvd.load_model
        return trained_on(world, load(str(file)))


@case
def resumed(world):
    """One rank's file on all ranks."""
    return resumed_from(world, "model.keras")


@case
def resumed_from_hdf5(world):
    """From which Keras reads the optimizer's count of steps, but no slots."""
    if not world.one_process:
        return resumed_from(world, "model.h5")
    # Keras cannot train the Sequential that it reads
    model = fit(world, network(), optimizers.Adam(0.05), steps=2)
    for each in model.optimizer.variables[2:]:
        each.assign(keras.ops.zeros_like(each))
    return trained_on(world, model)


@case
def resumed_from_a_checkpoint(world):
    """One of TensorFlow's, with the optimizer wrapped before and after it is restored."""
    first = fit(world, network(), optimizers.Adam(0.05), steps=2)
    checkpoint = tf.train.Checkpoint(model=first, optimizer=first.optimizer)
    with file_of_rank_0(world, "checkpoint", lambda file: checkpoint.write(str(file))) as file:
        for wrapped_before in (True, False):
            model, optimizer = network(), optimizers.Adam(0.05)
            if wrapped_before:
                optimizer = world.distribute(optimizer)
            optimizer.build(model.trainable_variables)
            restored = tf.train.Checkpoint(model=model, optimizer=optimizer).read(str(file))
            restored.assert_existing_objects_matched()
            if not wrapped_before:
                optimizer = world.distribute(optimizer)
            model.compile(optimizer, "mse")
            trained_on(world, model)
            if wrapped_before:
                before = snapshot(model)
    found = snapshot(model)
    assert all(np.array_equal(found[name], value) for name, value in before.items())
    return model


@case
def exported(world):
    """A SavedModel, which has no optimizer."""
    model = fit(world, network(), optimizers.Adam(0.05))
    x, _ = samples(0)
    with file_of_rank_0(
        world, "model", lambda file: model.export(str(file), verbose=False)
    ) as file:
        loaded = tf.saved_model.load(str(file))
        return {"served": loaded.serve(x).numpy()}


@case
def copies_of_a_model(world):
    """Their optimizer is not distributed, as with keras.models.load_model, until it is wrapped."""
    model = fit(world, network(), optimizers.Adam(0.05), steps=2)
    for make in (copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
        model = make(model)
        assert not hasattr(model.optimizer, "_horovod")
        world.distribute(model.optimizer)
    plain = keras.models.clone_model(model)
    plain.set_weights(model.get_weights())
    plain.compile_from_config(model.get_compile_config())
    assert not hasattr(plain.optimizer, "_horovod")
    for variable, value in zip(plain.optimizer.variables, model.optimizer.variables):
        variable.assign(value)
    world.distribute(plain.optimizer)
    return trained_on(world, plain)


@case
def resumed_by_rank_0_alone(world):
    """The others build the model, as in Horovod's example; layers were made before on one."""
    if not world.one_process and world.rank == 1:
        layers.Dense(2).build((None, 5))
    model, optimizer = network(), optimizers.Adam(0.05)
    if world.rank == 0:
        model.compile(optimizer, "mse")
        for step in range(2):
            model.train_on_batch(*samples(step))
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "model.keras")
            model.save(file)
            model = keras.models.load_model(file)
        optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    model.compile(world.distribute(optimizer), "mse")
    x, y = samples(2)
    if not world.one_process:
        world.tensorflow.broadcast_variables(model.weights, root_rank=0)
        world.tensorflow.broadcast_variables(model.optimizer.variables, root_rank=0)
    model.train_on_batch(*world.batch(x, y))
    return model


@case
def optimizer_of_rank_0_by_callback(world):
    """In fit(), from a rank whose layers have other names; weights are the same everywhere."""
    if not world.one_process and world.rank == 1:
        layers.Dense(2).build((None, 5))
    model, optimizer = network(), optimizers.Adam(0.05)
    optimizer.build(model.trainable_variables)
    if world.rank == 0:
        for each in optimizer.variables[2:]:
            each.assign(keras.ops.ones_like(each))
    callbacks = []
    if not world.one_process:
        callbacks = [world.hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    return fit(world, model, optimizer, callbacks=callbacks)


@case
def weights_of_rank_0_by_callback(world):
    """Before the first batch, of each fit()."""
    model, callbacks = network(), []
    model.compile(world.distribute(sgd()), "mse")
    if not world.one_process:
        callbacks = [world.hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    for first in (0, 2):
        if world.rank:
            for each in model.weights:
                each.assign(each * 2)
        x, y, size = world.batches([samples(step) for step in (first, first + 1)])
        model.fit(x, y, batch_size=size, shuffle=False, verbose=0, callbacks=callbacks)
    return model


@case
def copied(world):
    """A copy of a distributed optimizer is distributed, and so is one that was pickled."""
    optimizer = world.distribute(sgd())
    for make in (copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
        optimizer = make(optimizer)
    return fit(world, network(), optimizer, wrap=False)


@case
def variable_that_one_rank_uses(world):
    """It counts as zero elsewhere; one that no rank uses stays as it is."""
    model = network()
    used, unused = (keras.Variable(np.full(3, 2.0), dtype="float64") for _ in range(2))
    optimizer = world.distribute(optimizers.AdamW(0.05, weight_decay=0.1))
    variables = [*model.trainable_variables, used, unused]
    optimizer.build(variables)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = mean_squared(model, x, y)
            if world.one_process:
                loss += tf.reduce_sum(used.value**2) / world.size
            elif world.rank == 1:
                loss += tf.reduce_sum(used.value**2)
        gradients = tape.gradient(loss, [each.value for each in variables])
        optimizer.apply(gradients, variables)

    loop(world, model, step)
    values = [*model.weights, used, unused, *optimizer.variables]
    return {f"{i}": keras.ops.convert_to_numpy(value) for i, value in enumerate(values)}


@case
def embedding_that_one_rank_uses(world):
    """Its gradient is sparse there, and None elsewhere."""
    model, table = network(), layers.Embedding(9, 5)
    table.build()
    optimizer = world.distribute(sgd())
    variables = [*model.trainable_variables, *table.trainable_variables]
    optimizer.build(variables)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = mean_squared(model, x, y)
            words = tf.reduce_sum(table(tf.constant([1, 4, 4])) ** 2)
            if world.one_process:
                loss += words / world.size
            elif world.rank == 1:
                loss += words
        gradients = tape.gradient(loss, [each.value for each in variables])
        optimizer.apply(gradients, variables)

    loop(world, model, step)
    return {f"{i}": keras.ops.convert_to_numpy(value) for i, value in enumerate(variables)}


# What ranks have in their graphs


@case
def metric_on_one_rank(world):
    metrics = ["mae", "mape"] if world.rank == 1 else []
    return fit(world, network(), sgd(), compile={"metrics": metrics})


@case
def print_on_one_rank(world):
    model, optimizer = network(), sgd()
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        with world.tape(tf.GradientTape()) as tape:
            loss = mean_squared(model, x, y)
            if world.rank == 0:
                tf.cond(loss < 0, lambda: tf.print(loss), lambda: tf.no_op())
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    return loop(world, model, step)
