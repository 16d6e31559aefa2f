"""Distributed training with Keras, on TensorFlow, and Horovod; ``python train.py --help``."""

import argparse
import os
import time

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import horovod.keras as hvd
import keras
import numpy as np
import tensorflow as tf
from horovod.tensorflow import broadcast_variables

FEATURES, CLASSES = 32, 10


def main():
    args = parse()

    # 1. Initialise: from now on, this process is one rank of hvd.size().
    hvd.init()
    keras.utils.set_random_seed(args.seed)

    # 2. Pin the GPU: one per rank of a node.  If the launcher shows each rank only one GPU, it is
    #    number 0.
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        gpu = gpus[hvd.local_rank() % len(gpus)]
        tf.config.set_visible_devices(gpu, "GPU")
        tf.config.experimental.set_memory_growth(gpu, True)

    # Each rank reads its own part of the data, which every rank shuffles the same way.
    steps = args.samples // hvd.size() // args.batch_size
    if steps == 0:
        raise SystemExit("--samples: less than one batch per rank")
    dataset = synthetic(args.samples).shuffle(args.samples, seed=args.seed)
    dataset = dataset.shard(hvd.size(), hvd.rank()).batch(args.batch_size).take(steps)

    # 3. Scale the learning rate, because a step now uses hvd.size() batches, and wrap the
    #    optimizer, which averages the gradients over the ranks before it applies them.
    rate = args.lr * hvd.size()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9))
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(args.hidden, activation="relu"),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    # XLA, which Keras 3 uses on GPUs, cannot compile Horovod's operations.
    model.compile(optimizer, loss="sparse_categorical_crossentropy", jit_compile=False)
    optimizer.build(model.trainable_variables)

    # 4. Broadcast from rank 0, the only one to read the checkpoint, so that all ranks start equal.
    #    (hvd.callbacks.BroadcastGlobalVariablesCallback does so after the first batch, in which
    #    ranks without the checkpoint would still have different weights.)
    done = tf.Variable(0, dtype=tf.int64)  # epochs
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    manager = tf.train.CheckpointManager(checkpoint, args.checkpoint, max_to_keep=1)
    if hvd.rank() == 0:
        manager.restore_or_initialize()
        optimizer.learning_rate = rate  # the checkpoint's is for its number of ranks
    broadcast_variables([done, *model.variables, *optimizer.variables], root_rank=0)

    # One iterator for all epochs, each in its own order: ending an iterator takes up to a second.
    batches = dataset.repeat().skip(int(done) * steps).prefetch(tf.data.AUTOTUNE)

    # Every rank takes part in the average, with the same metrics and, if any, validation data; one
    # of them prints the result.
    callbacks = [hvd.callbacks.MetricAverageCallback()]
    if hvd.rank() == 0:
        # 5. Checkpoint on rank 0: the others have the same weights.
        callbacks.append(PrintAndSave(manager, done, steps * args.batch_size * hvd.size()))
    model.fit(
        batches,
        initial_epoch=int(done),
        epochs=args.epochs,
        steps_per_epoch=steps,
        callbacks=callbacks,
        verbose=0,
        shuffle=False,
    )
    hvd.shutdown()


def synthetic(samples):
    """Points around one centre per class; the same on every rank."""
    random = np.random.default_rng(1)
    centres = random.standard_normal((CLASSES, FEATURES), dtype="float32")
    labels = random.integers(CLASSES, size=samples)
    points = centres[labels] + 2 * random.standard_normal((samples, FEATURES), dtype="float32")
    return tf.data.Dataset.from_tensor_slices((points, labels))


class PrintAndSave(keras.callbacks.Callback):
    """Print a line and write a checkpoint after each epoch."""

    def __init__(self, manager, done, samples):
        super().__init__()
        self.manager = manager
        self.done = done
        self.samples = samples

    def on_epoch_begin(self, epoch, logs=None):
        self.begin = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        rate = self.samples / (time.perf_counter() - self.begin)
        print(f"epoch {epoch + 1}: loss {logs['loss']:.6f}, {rate:.0f} samples/s", flush=True)
        self.done.assign(epoch + 1)
        self.manager.save()


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5, help="total, with the checkpoint's")
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step")
    parser.add_argument("--hidden", type=int, default=128, help="units of the hidden layer")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one rank")
    parser.add_argument("--samples", type=int, default=8192, help="size of the data set")
    parser.add_argument("--seed", type=int, default=1, help="for weights and order of data")
    parser.add_argument(
        "--checkpoint",
        default="checkpoint",
        help="directory, written each epoch; resumed if it exists",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
