"""Training with fit() of Keras and Horovod that goes on when workers are lost or added.

``horovodrun --gloo ... --host-discovery-script ./discover_hosts.sh`` starts it.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import horovod.tensorflow.keras as hvd
import keras
import numpy as np
import tensorflow as tf
from horovod.tensorflow import allgather_object


def main():
    args = parse()

    # 1. Initialise.  Rank and number of ranks change with the workers.
    hvd.init()
    keras.utils.set_random_seed(args.seed)

    # 2. Pin the GPU: one per rank of a node.  If the launcher shows each rank only one GPU, it is
    #    number 0.
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        gpu = gpus[hvd.local_rank() % len(gpus)]
        tf.config.set_visible_devices(gpu, "GPU")
        tf.config.experimental.set_memory_growth(gpu, True)

    images, labels = mnist_like(args.samples)
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(8, 5, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )

    # 3. Wrap the optimizer, and scale the learning rate whenever workers have changed.
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(args.lr, momentum=0.9))
    # XLA, which Keras 3 uses on GPUs, cannot compile Horovod's operations.
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    optimizer.build(model.trainable_variables)

    # 4. The state holds everything that must outlive a worker.  When workers have changed, rank 0,
    #    one of the oldest workers, broadcasts its state to all.
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)

    @hvd.elastic.run
    def train(state):
        """Train; called again, with the committed state, when workers were lost or added."""
        optimizer.learning_rate = args.lr * hvd.size()
        say(f"rank {hvd.rank()} of {hvd.size()} at {place(state)}: {describe(model)}")
        # The current workers share the data, all in batches of one size.  Each has as many of them
        # as the others, or some would wait for ever.
        steps = args.samples // hvd.size() // args.batch_size
        dataset = tf.data.Dataset.from_tensor_slices((images, labels))
        dataset = dataset.shuffle(args.samples, seed=args.seed).shard(hvd.size(), hvd.rank())
        dataset = dataset.batch(args.batch_size).take(steps).repeat()
        model.fit(
            # after a reset, fit() takes what is left of the epoch
            dataset.skip(state.epoch * steps + state.batch).prefetch(tf.data.AUTOTUNE),
            steps_per_epoch=steps,
            epochs=args.epochs - state.epoch,
            callbacks=[
                # First: it averages over the ranks, in which all take part.
                hvd.callbacks.MetricAverageCallback(),
                # Where training is, so that it goes on there.
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
                # 5. Commit: each worker keeps a copy in memory, and goes back to it when another
                #    is lost.  Added workers join here.
                hvd.elastic.CommitStateCallback(state, batches_per_commit=args.commit),
                Print(state),
            ],
            verbose=0,
            shuffle=False,
        )
        # With a name: those that Horovod counts differ between old workers and new ones.
        if len(set(allgather_object(describe(model), name="weights"))) > 1:
            raise SystemExit("the ranks have different weights")

    train(state)
    if hvd.rank() == 0:
        # For later jobs; under another name first, so that a killed job leaves a complete file.
        name, extension = os.path.splitext(args.checkpoint)
        model.save(f"{name}.new{extension}")
        os.replace(f"{name}.new{extension}", args.checkpoint)
        say(f"trained to {place(state)}: {describe(model)}")
    hvd.shutdown()


class Print(keras.callbacks.Callback):
    """Print the mean loss of all ranks on one of them, after each epoch."""

    def __init__(self, state):
        super().__init__()
        self.state = state

    def on_epoch_end(self, epoch, logs=None):
        if hvd.rank() == 0:
            say(f"epoch {self.state.epoch} ended: loss {logs['loss']:.6f}, {describe(self.model)}")


def say(line):
    """Print a line at once: the pipe of a worker that is killed loses what waits in it."""
    print(line, flush=True)


def place(state):
    return f"epoch {state.epoch}, batch {state.batch}"


def describe(model):
    """Return a number that is the same for two models only if their weights are."""
    total = sum(np.linalg.norm(weights.astype("float64")) for weights in model.get_weights())
    return f"weights {total:.9f}"


def mnist_like(samples):
    """Ten patterns of 28 x 28 pixels, in much noise, and their numbers: the same on every rank."""
    random = np.random.default_rng(1)
    patterns = random.standard_normal((10, 28, 28, 1), dtype="float32")
    labels = random.integers(10, size=samples)
    noise = random.standard_normal((samples, 28, 28, 1), dtype="float32")
    return patterns[labels] + 4 * noise, labels


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank")
    parser.add_argument("--samples", type=int, default=8192, help="size of the data set")
    parser.add_argument("--commit", type=int, default=10, help="batches between two commits")
    parser.add_argument("--seed", type=int, default=1, help="for weights and order of data")
    parser.add_argument("--checkpoint", default="model.keras", help="written at the end")
    return parser.parse_args()


if __name__ == "__main__":
    main()
