"""A worker of an elastic job with Keras, of which one is lost in an epoch."""

import os
import pathlib
import signal
import sys

import horovod.tensorflow.keras as hvd
import keras
import numpy as np

STEPS, EPOCHS = 8, 3
hvd.init()
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.9)), "mse")
state = hvd.elastic.KerasState(model, batch=0, epoch=0)


class Lose(keras.callbacks.Callback):
    """End a worker by a signal, once, before a batch or after one."""

    def __init__(self, moment):
        super().__init__()
        self.moment = moment

    def on_train_batch_begin(self, batch, logs=None):
        self.lose("before", batch)

    def on_train_batch_end(self, batch, logs=None):
        self.lose("after", batch)

    def lose(self, moment, batch):
        if moment == self.moment and state.epoch == 1 and batch == 3 and hvd.rank() == 1:
            pathlib.Path("lost").touch()
            os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state):
    place = f"epoch {state.epoch}, batch {state.batch}, step {int(model.optimizer.iterations)}"
    print(f"rank {hvd.rank()} of {hvd.size()} at {place}\n", end="", flush=True)
    random = np.random.RandomState(hvd.rank())
    x, y = random.randn(4 * STEPS, 3), random.randn(4 * STEPS, 2)
    callbacks = [
        hvd.elastic.CommitStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
    ]
    if not pathlib.Path("lost").exists():
        callbacks.append(Lose(sys.argv[1]))
    options = {"batch_size": 4, "epochs": EPOCHS - state.epoch, "verbose": 0}
    model.fit(x, y, callbacks=callbacks, **options)


train(state)
place = f"epoch {state.epoch}, batch {state.batch}, step {int(model.optimizer.iterations)}"
print(f"rank {hvd.rank()} ended at {place}\n", end="", flush=True)
