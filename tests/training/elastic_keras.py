"""A worker of an elastic job with Keras, of which one is lost; trains by fit() or by a tape.

Usage: elastic_keras.py MOMENT KERAS, with a moment of test_elastic_keras.py, and 2 or 3.
"""

import json
import os
import pathlib
import signal
import sys
import time

MOMENT, KERAS = sys.argv[1:]
os.environ["TF_USE_LEGACY_KERAS"] = str(int(KERAS == "2"))
import horovod.tensorflow  # noqa: E402
import horovod.tensorflow.keras as hvd  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

keras = tf.keras
STEPS, EPOCHS = 8, 3
LOST = pathlib.Path("lost")
if MOMENT == "init" and os.environ["HOROVOD_RANK"] == "1" and not LOST.exists():
    LOST.touch()
    # the first worker waits for this one by then
    time.sleep(2)
    os.kill(os.getpid(), signal.SIGKILL)
if MOMENT == "init":
    os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "10"
hvd.init()
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, kernel_initializer="zeros")])
optimizer = keras.optimizers.SGD(0.01, momentum=0.9)


def lose(moment, batch):
    """End the second worker by a signal, once."""
    here = state.epoch == (moment != "sync") and batch == 3
    if here and moment == MOMENT and hvd.rank() == 1 and not LOST.exists():
        LOST.touch()
        os.kill(os.getpid(), signal.SIGKILL)


kinds = horovod.tensorflow.elastic.TensorFlowKerasState, hvd.elastic.KerasState


class State(kinds[MOMENT != "tape"]):
    def sync(self):
        lose("sync", 3)
        super().sync()

    def save(self):
        # of a batch that has ended
        lose("commit", self.batch - 1)
        super().save()


class Lose(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        lose("before", batch)

    def on_train_batch_end(self, batch, logs=None):
        lose("after", batch)

    def on_epoch_end(self, epoch, logs=None):
        lose("end", 3)


def place():
    return f"epoch {state.epoch}, batch {state.batch}, step {int(optimizer.iterations)}"


def samples():
    random = np.random.RandomState(hvd.rank())
    return random.randn(4 * STEPS, 3), random.randn(4 * STEPS, 2)


def fit():
    x, y = samples()
    callbacks = [
        Lose(),
        hvd.callbacks.MetricAverageCallback(),
        hvd.elastic.CommitStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
    ]
    options = {"batch_size": 4, "epochs": EPOCHS - state.epoch, "verbose": 0}
    model.fit(x, y, callbacks=callbacks, shuffle=False, **options)


def loop():
    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        tape = horovod.tensorflow.DistributedGradientTape(tape)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))

    x, y = (each.astype("float32") for each in samples())
    while state.epoch < EPOCHS:
        while state.batch < STEPS:
            rows = slice(4 * state.batch, 4 * state.batch + 4)
            lose("tape", state.batch)
            step(x[rows], y[rows])
            state.batch += 1
            state.commit()
        state.batch = 0
        state.epoch += 1


@hvd.elastic.run
def train(state):
    print(f"rank {hvd.rank()} of {hvd.size()} at {place()}\n", end="", flush=True)
    (loop if MOMENT == "tape" else fit)()


if MOMENT != "tape":
    # after: in groups
    optimizer = hvd.DistributedOptimizer(optimizer, groups=2 if MOMENT == "after" else None)
model.compile(optimizer, "mse")
state = State(model, batch=0, epoch=0)
train(state)
print(f"rank {hvd.rank()} ended at {place()}\n", end="", flush=True)
weights = json.dumps([each.tolist() for each in model.get_weights()])
print(f"with {weights}\n", end="", flush=True)
