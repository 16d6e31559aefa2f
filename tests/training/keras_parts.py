"""What ranks do with TensorFlow's operations, each a function that returns what is wrong."""

import contextlib
import os
import unittest.mock
import warnings

import keras
import numpy as np
import tensorflow as tf

ROWS = 4


def inputs(rank, size):
    """Rows, of which each rank gets some where they are scattered."""
    rows = ROWS * size
    return tf.reshape(tf.range(rows * 2, dtype=tf.float64), (rows, 2)) / 7 + rank


def weights(rank, shape):
    return np.random.RandomState(rank).randn(*shape)


def operations(hvd):
    """By name: the operation, and NumPy's gradient of a rank from those of all outputs."""

    def mine(of, rank, size):
        return of[ROWS * rank : ROWS * (rank + 1)]

    return {
        "sum": (lambda x: hvd.allreduce(x, op=hvd.Sum), lambda ys, r, n: sum(ys)),
        "mean": (lambda x: hvd.allreduce(x, op=hvd.Average), lambda ys, r, n: sum(ys) / n),
        "grouped": (
            lambda x: sum(hvd.grouped_allreduce([x, x], op=hvd.Sum)),
            lambda ys, r, n: 2 * sum(ys),
        ),
        "scaled": (
            lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
            lambda ys, r, n: 2 * sum(ys),
        ),
        "allgather": (hvd.allgather, lambda ys, r, n: np.split(sum(ys), n)[r]),
        "grouped allgather": (
            lambda x: sum(hvd.grouped_allgather([x, x])),
            lambda ys, r, n: 2 * np.split(sum(ys), n)[r],
        ),
        "broadcast": (
            lambda x: hvd.broadcast(x, 1),
            lambda ys, r, n: sum(ys) if r == 1 else 0 * ys[0],
        ),
        "reducescatter": (
            lambda x: hvd.reducescatter(x, op=hvd.Sum),
            lambda ys, r, n: np.concatenate(ys),
        ),
        "mean of reducescatter": (
            lambda x: hvd.reducescatter(x, op=hvd.Average),
            lambda ys, r, n: np.concatenate(ys) / n,
        ),
        "grouped reducescatter": (
            lambda x: sum(hvd.grouped_reducescatter([x, x], op=hvd.Sum)),
            lambda ys, r, n: 2 * np.concatenate(ys),
        ),
        "alltoall": (hvd.alltoall, lambda ys, r, n: np.concatenate([mine(y, r, n) for y in ys])),
    }


def with_ranks_of(rank, size):
    """Where an elastic job makes a graph, which outlives these ranks."""
    mock = unittest.mock
    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.dict(os.environ, HOROVOD_ELASTIC="1"))
    place = {"rank": lambda *of: rank, "size": lambda *of: size}
    for module in ("mpi_ops", "sync_batch_norm"):
        name = f"horovod.tensorflow.{module}"
        stack.enter_context(mock.patch.multiple(name, **place, create=True))
    stack.enter_context(mock.patch.multiple("horovod.common.process_sets.ProcessSet", **place))
    return stack


def gradients(world, within, elastic=False):
    """Of a weighted sum over all ranks' results, against NumPy."""
    hvd, rank, size = world.tensorflow, world.rank, world.size
    wrong = []
    for name, (operation, right) in operations(hvd).items():
        x = tf.Variable(inputs(rank, size))
        # a function does not know how much another rank gathers
        ys = [weights(each, operation(x).shape.as_list()) for each in range(size)]

        def of(x, operation=operation, factors=ys[rank]):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(operation(x) * factors)
            return tape.gradient(loss, x)

        run = tf.function(of) if within else of
        if elastic:
            with with_ranks_of(rank=8, size=9):
                run.get_concrete_function(x)
        found = run(x)
        if not np.allclose(found, right(ys, rank, size), rtol=1e-12):
            wrong.append(name)
    return wrong


def normalization_after_one_rank(world):
    """The mean of all ranks, by a graph that was made where an elastic job had one."""
    layer = world.tensorflow.SyncBatchNormalization(momentum=0.0)
    x = tf.constant([[float(world.rank)]])
    layer.build(x.shape)
    with with_ranks_of(rank=0, size=1):
        run = tf.function(lambda x: layer(x, training=True)).get_concrete_function(x)
    run(x)
    return layer.moving_mean.numpy().tolist()


def refuse_gradient(world, op, grouped):
    hvd = world.tensorflow
    x, op = tf.Variable([1.0, 2.0]), getattr(hvd, op)
    try:
        with tf.GradientTape() as tape:
            y = hvd.grouped_allreduce([x, x], op=op) if grouped else hvd.allreduce(x, op=op)
        tape.gradient(y, x)
    except (NotImplementedError, LookupError) as error:
        return str(error)
    return ""


def sets_that_are_not_registered(world):
    """What operations and a tape are told, for a set with this rank and for one without it."""
    hvd, x = world.tensorflow, tf.Variable([1.0, 2.0])

    def gradient(x, process_set):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(x)
        return hvd.DistributedGradientTape(tape, process_set=process_set).gradient(y, [x])

    def broadcast(x, process_set):
        return hvd.broadcast(x, 0, process_set=process_set)

    calls = [hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter, broadcast, gradient]
    told = []
    for operation in calls:
        for ranks in ([world.rank], [(world.rank + 1) % world.size]):
            try:
                told.append(str(operation(x, process_set=hvd.ProcessSet(ranks))))
            except ValueError as error:
                told.append(str(error))
    return told


def constant_of_a_graph(world):
    """It is computed when the graph runs, not when it is made."""
    hvd = world.tensorflow

    @tf.function
    def of():
        return hvd.allreduce(tf.constant(2.0), op=hvd.Sum)

    return [float(of()) for _ in range(2)]


def result_that_one_rank_uses(world):
    hvd = world.tensorflow

    @tf.function
    def of(x):
        total = hvd.allreduce(x, op=hvd.Sum)
        return total if world.rank == 0 else x

    return float(of(tf.constant(1.0)))


def captured_tensor(world):
    hvd = world.tensorflow
    x = tf.constant([1.0, 2.0])

    @tf.function
    def of():
        return hvd.allreduce(x, op=hvd.Sum)

    return of().numpy().tolist()


def operation_without_a_name(world):
    """And its gradient, on ranks whose programs have other functions and operations."""
    hvd, x = world.tensorflow, tf.Variable(3.0)

    def gradient(function):
        with tf.GradientTape() as tape:
            y = function(x)
        return [float(y), float(tape.gradient(y, x))]

    if world.rank == 0:
        gradient(tf.function(tf.square))

    @tf.function
    def of(x):
        if world.rank == 0:
            tf.square(x)
        return hvd.allreduce(tf.square(x), op=hvd.Sum)

    return gradient(of)


def variables_that_ranks_use(world, within):
    """Gradients by steps, in which the first rank, all ranks or none use the second variable."""
    hvd = world.tensorflow
    found = []
    for used in (False, world.rank == 0, True, False):
        variables = [tf.Variable(1.0), tf.Variable(1.0)]

        def step(used=used, variables=variables):
            with tf.GradientTape() as tape:
                loss = variables[0] + variables[1] if used else 1.0 * variables[0]
            return hvd.DistributedGradientTape(tape).gradient(loss, variables)

        gradients = (tf.function(step) if within else step)()
        found.append([each if each is None else float(each) for each in gradients])
    return found


def functions_with_other_gradients(world):
    """Of the same variables: both, the first one, and those of a function that ranks differ in."""
    hvd = world.tensorflow
    variables = [tf.Variable(1.0), tf.Variable(1.0)]

    @tf.function
    def step(used):
        with tf.GradientTape() as tape:
            loss = 1.0 * variables[0] + (variables[1] if used[world.rank] else 0.0)
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    all_ranks, no_rank = [True] * world.size, [False] * world.size
    some_ranks = [True] + no_rank[1:]
    found = [step(tuple(used)) for used in (all_ranks, no_rank, all_ranks)]
    # ranks that differ may change at other times
    other = [tf.Variable(1.0), tf.Variable(1.0)]
    variables[:] = other
    step = tf.function(step.python_function)
    found += [step(tuple(used)) for used in (some_ranks, all_ranks, some_ranks[::-1])]
    return [[each if each is None else float(each) for each in of] for of in found]


def passes_with_other_gradients(world, within):
    """Three variables after two steps: without gradients, with them, and with some passes'."""
    variables = [keras.Variable(1.0, dtype="float32") for _ in range(3)]
    options = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    optimizer = world.distribute(keras.optimizers.SGD(0.1), **options)
    optimizer.build(variables)

    def step(first):
        with tf.GradientTape() as tape:
            loss = variables[1].value + (variables[2].value if first else 0.0)
        optimizer.apply(tape.gradient(loss, [each.value for each in variables]), variables)

    decorated = tf.function(step) if within else step
    for first in (True, False, True, False):
        decorated(first)
    return [float(each.value) for each in variables]


def passes_after_a_reset(world):
    """Steps after a pass, a reset of the elastic job, and another pass; and after the next one."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(world.distribute(keras.optimizers.SGD(0.1), backward_passes_per_step=2), "mse")
    state = world.hvd.elastic.KerasState(model)
    found = []
    for reset in (state.sync, state.restore, lambda: None):
        model.train_on_batch(np.ones((1, 1)), np.ones((1, 1)))
        found.append(int(model.optimizer.iterations.value))
        reset()
    model.train_on_batch(np.ones((1, 1)), np.ones((1, 1)))
    return [*found, int(model.optimizer.iterations.value)]


def operations_of_a_function(world):
    """They are under way at the same time, so that Horovod can fuse them."""
    hvd = world.tensorflow

    @tf.function
    def of(*tensors):
        return [hvd.allreduce(each, op=hvd.Sum) for each in tensors]

    graph = of.get_concrete_function(*[tf.constant(1.0)] * 3).graph
    found = [op for op in graph.get_operations() if op.type == "HorovodAllreduce"]
    return [len(found), sum(len(op.control_inputs) for op in found)]


def a_group_whose_first_tensors_differ(world):
    tensors = [tf.ones(3 + world.rank), tf.ones(3)]
    try:
        world.tensorflow.grouped_allreduce(tensors, op=world.tensorflow.Sum)
    except tf.errors.OpError as error:
        return error.message
    return ""


def different_metrics(world):
    """Those of rank 0, which alone validates."""
    callback = world.hvd.callbacks.MetricAverageCallback()
    try:
        callback.on_epoch_end(0, {"loss": 1.0, **({} if world.rank else {"val_loss": 2.0})})
    except ValueError as error:
        return str(error)
    return ""


def mean_of_metrics(world):
    """Of a number, and of one for each class."""
    logs = {"loss": float(world.rank), "f1": np.array([1.0, world.rank])}
    world.hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    return [type(logs["loss"]).__name__, logs["loss"], logs["f1"].tolist()]


def different_numbers_of_gradients(world):
    """None on rank 0."""
    variables = [tf.Variable(1.0) for _ in range(2 * world.rank)]
    with tf.GradientTape() as tape:
        loss = sum((each * each for each in variables), tf.constant(0.0))
    try:
        world.tensorflow.DistributedGradientTape(tape).gradient(loss, variables)
    except ValueError as error:
        return str(error)
    return ""


def different_numbers_of_variables(world):
    variables = [tf.Variable(1.0) for _ in range(1 + world.rank)]
    try:
        world.tensorflow.broadcast_variables(variables, root_rank=0)
    except ValueError as error:
        return str(error)
    return ""


def min_after_join(world):
    """What rank 0 is told, while the others have joined; once before, so that it is cached."""
    hvd = world.tensorflow
    x, told = tf.constant([5.0]), ""
    hvd.allreduce(x, op=hvd.Min, name="cached minimum")
    if world.rank == 0:
        try:
            hvd.allreduce(x, op=hvd.Min, name="cached minimum")
        except tf.errors.OpError as error:
            told = error.message
    hvd.join()
    return hvd.broadcast_object(told, root_rank=0)


def refused_exchanges(world):
    """Of a number; of splits that leave a row, on all ranks and on one; of negative splits."""
    size, told = world.size, []
    ones, row = tf.ones([size], tf.int32), tf.one_hot(0, size, dtype=tf.int32)
    of_one = tf.ones([size + (world.rank == 0)])
    exchanges = [(tf.constant(1.0), None), (tf.ones([size + 1]), ones), (of_one, ones)]
    for tensor, splits in [*exchanges, (tf.ones([size - 2]), ones - 2 * row)]:
        try:
            world.tensorflow.alltoall(tensor, splits)
        except (tf.errors.OpError, ValueError) as error:
            told.append(str(error))
    return told


def compression_of_large_bfloat16(world):
    """1e5 is out of float16's range."""
    hvd = world.tensorflow
    x = tf.constant([1e5], tf.bfloat16)
    return float(hvd.allreduce(x, compression=hvd.Compression.fp16)[0])


def sum_of_sums(world):
    """A tape's gradients, in an optimizer that would sum them again."""
    optimizer = world.distribute(keras.optimizers.SGD(0.1), op=world.hvd.Sum)
    variable = keras.Variable(2.0)
    optimizer.build([variable])
    with world.tape(tf.GradientTape()) as tape:
        loss = variable.value**2
    try:
        optimizer.apply([tape.gradient(loss, variable)], [variable])
    except ValueError as error:
        return str(error)
    return ""


def local_optimizers(world):
    """How often fit() warns of an optimizer: local, distributed, and with a train_step."""

    class Own(keras.Sequential):
        def train_step(self, data):
            return {"loss": tf.constant(0.0)}

    found = []
    plain = keras.optimizers.SGD(0.1)
    distributed = world.distribute(keras.optimizers.SGD(0.1))
    for kind, optimizer in [
        (keras.Sequential, plain),
        (keras.Sequential, distributed),
        (Own, plain),
    ]:
        model = kind([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile(optimizer, "mse")
        optimizer.build(model.trainable_variables)
        callback = world.hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model.fit(np.ones((2, 3)), np.ones((2, 2)), callbacks=[callback], verbose=0)
        found.append(sum("is not distributed" in str(each.message) for each in told))
    return found


def errors_of_elastic_functions(world):
    """What hvd.elastic.run() makes of an error of a group of Horovod's, and of another one."""
    from horovod.tensorflow import elastic

    def fail(state, text):
        raise tf.errors.UnknownError(None, None, text)

    found = []
    with unittest.mock.patch.object(elastic, "run_fn", lambda function, reset: function):
        train = elastic.run(fail)
    for text in ("{{node HorovodGroupedAllreduce}} shut down", "the disk is full"):
        try:
            train(None, text)
        except Exception as error:
            found.append(type(error).__name__)
    return found


def synchronized_state(world):
    """TensorFlowState gives all ranks rank 0's variables and attributes."""
    variable = tf.Variable(float(world.rank + 1))
    state = world.tensorflow.elastic.TensorFlowState([variable], batch=world.rank)
    before = float(variable)
    state.sync()
    return [before, float(variable), state.batch]


def refused_optimizers(world):
    """What is said of what is no optimizer, and of one that is distributed already."""
    told = []
    for optimizer in (keras.optimizers.Adam, 7, world.distribute(keras.optimizers.Adam())):
        try:
            world.distribute(optimizer)
        except (TypeError, ValueError) as error:
            told.append(str(error))
    return told


def made_of_a_configuration(world):
    """It is not distributed, and can be, in the same way."""
    optimizer = world.distribute(keras.optimizers.SGD(0.1))
    made = optimizer.from_config(optimizer.get_config())
    before = hasattr(type(made), "register_local_var")
    return [before, type(world.distribute(made)) is type(optimizer)]


def by_name(world):
    return world.distribute("adam").name.rstrip("_0123456789")


def momentum_with_loss_scale(world):
    """The momentum gathered so far follows the rate, inside LossScaleOptimizer too."""
    from horovod._keras import keras_3

    inner = keras.optimizers.SGD(0.5, momentum=0.9)
    optimizer = keras.optimizers.LossScaleOptimizer(inner)
    variable = keras.Variable([1.0])
    optimizer.build([variable])
    inner.momentums[0].assign([8.0])
    keras_3.set_learning_rate(optimizer, 0.25, True)
    return [float(inner.momentums[0].value[0]), float(inner.learning_rate)]


def momentum_without_the_rate(world):
    """Muon's, which is that of gradients."""
    from horovod._keras import keras_3

    optimizer = keras.optimizers.Muon(0.5)
    optimizer.build([keras.Variable([[1.0]]), keras.Variable([1.0])])
    optimizer.momentums[0].assign([[8.0]])
    keras_3.set_learning_rate(optimizer, 0.25, True)
    return float(optimizer.momentums[0].value[0][0])


def best_model_checkpoint(world):
    return str(world.hvd.callbacks.BestModelCheckpoint().save_best_only)


def broadcast_object_fn(world):
    return world.tensorflow.broadcast_object_fn(root_rank=1)({"rank": world.rank})


def hook_of_a_session(world):
    hvd, v1 = world.tensorflow, tf.compat.v1
    with tf.Graph().as_default():
        variable = v1.get_variable("of_the_session", initializer=float(world.rank + 5))
        hook = hvd.BroadcastGlobalVariablesHook(0)
        with v1.train.SingularMonitoredSession(hooks=[hook]) as session:
            return float(session.run(variable))


def adasum_of_a_function(world):
    """No process is forked, while MPI has threads, to see whether there are GPUs."""
    hvd = world.tensorflow

    def refuse():
        raise AssertionError("forked")

    function = tf.function(lambda x: hvd.allreduce(x, op=hvd.Adasum))
    with unittest.mock.patch("os.fork", refuse):
        assert hvd.gpu_available("tensorflow") is False
        try:
            return function(tf.constant([1.0, 2.0])).numpy().tolist()
        except NotImplementedError as error:
            return str(error)
