"""Distributed training with model.fit() of Keras, on TensorFlow 2, and Horovod."""

import argparse
import os
import time

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import horovod.tensorflow.keras as hvd
import keras
import numpy as np
import tensorflow as tf
from horovod.tensorflow import allgather_object, broadcast_variables


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

    # Each rank reads its own part of the data, which every rank shuffles the same way.  All take
    # the same number of batches of one size: a rank with one batch more would wait for the others
    # for ever, and a smaller batch would count as much as the others.
    steps = args.samples // hvd.size() // args.batch_size
    if steps == 0:
        raise SystemExit("--samples: less than one batch per rank")
    images, labels = mnist_like(args.samples + args.test_samples)
    dataset = tf.data.Dataset.from_tensor_slices((images[: args.samples], labels[: args.samples]))
    dataset = dataset.shuffle(args.samples, seed=args.seed).shard(hvd.size(), hvd.rank())
    dataset = dataset.batch(args.batch_size).take(steps)
    # Also to validate: each rank a part of one size.
    last = args.samples + args.test_samples // hvd.size() * hvd.size()
    part = slice(args.samples + hvd.rank(), last, hvd.size())

    # 3. Scale the learning rate, because a step now uses hvd.size() batches, and wrap the
    #    optimizer, which averages the gradients over the ranks before it applies them.
    rate = args.lr * hvd.size()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9))
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(8, 5, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    # XLA, which Keras 3 uses on GPUs, cannot compile Horovod's operations.
    model.compile(
        optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False
    )
    optimizer.build(model.trainable_variables)

    # 4. Broadcast from rank 0, the only one to read the checkpoint, so that all ranks start equal.
    #    (hvd.callbacks.BroadcastGlobalVariablesCallback does so after the first batch, in which
    #    ranks without the checkpoint would still have different weights.)
    done = tf.Variable(0, dtype=tf.int64)  # epochs
    manager = None
    if args.checkpoint and hvd.rank() == 0:
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
        manager = tf.train.CheckpointManager(checkpoint, args.checkpoint, max_to_keep=1)
        manager.restore_or_initialize()
        optimizer.learning_rate = rate  # the checkpoint's is for its number of ranks
    broadcast_variables([done, *model.variables, *optimizer.variables], root_rank=0)

    # One iterator for all epochs, each in its own order: ending an iterator takes up to a second.
    batches = dataset.repeat().skip(int(done) * steps).prefetch(tf.data.AUTOTUNE)

    # Every rank takes part in the average, with the same metrics: each has to validate, or none.
    # One of them prints the result, so that callback comes after this one.
    callbacks = [hvd.callbacks.MetricAverageCallback()]
    if args.warmup_epochs:
        # So high a rate is reached gradually.
        callbacks.append(hvd.callbacks.LearningRateWarmupCallback(rate, args.warmup_epochs))
    if hvd.rank() == 0:
        # 5. Checkpoint on rank 0: the others have the same weights.
        callbacks.append(PrintAndSave(manager, done, steps * args.batch_size * hvd.size()))
    history = model.fit(
        batches,
        initial_epoch=int(done),
        epochs=args.epochs,
        steps_per_epoch=steps,
        validation_data=(images[part], labels[part]),
        callbacks=callbacks,
        verbose=0,
        shuffle=False,
    ).history
    check(model, history.get("loss"))
    if hvd.rank() == 0:
        told = f"accuracy {history['val_accuracy'][-1]:.1%}" if history else "all epochs were done"
        print(f"{told}, ranks with the same weights: {hvd.size()}", flush=True)
    hvd.shutdown()


def mnist_like(samples):
    """Ten patterns of 28 x 28 pixels, in much noise, and their numbers: the same on every rank."""
    random = np.random.default_rng(1)
    patterns = random.standard_normal((10, 28, 28, 1), dtype="float32")
    labels = random.integers(10, size=samples)
    noise = random.standard_normal((samples, 28, 28, 1), dtype="float32")
    return patterns[labels] + 4 * noise, labels


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
        print(f"epoch {epoch + 1}: loss {logs['loss']:.6f}, {rate:.0f} images/s", flush=True)
        self.done.assign(epoch + 1)
        if self.manager:
            self.manager.save()


def check(model, losses):
    """Fail, on every rank, if the ranks differ in weights or the loss has not fallen."""
    total = sum(weights.sum(dtype="float64") for weights in model.get_weights())
    if len(set(allgather_object(total))) > 1:
        raise SystemExit("the ranks have different weights")
    if losses and not losses[-1] <= losses[0]:
        raise SystemExit(f"the loss has not fallen: {losses}")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5, help="total, with the checkpoint's")
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank")
    parser.add_argument("--warmup-epochs", type=int, default=1, help="until the rate of all ranks")
    parser.add_argument("--samples", type=int, default=8192, help="images to train with")
    parser.add_argument("--test-samples", type=int, default=1024, help="images to validate with")
    parser.add_argument("--seed", type=int, default=1, help="for weights and order of data")
    parser.add_argument("--checkpoint", help="directory, written each epoch; resumed if it exists")
    return parser.parse_args()


if __name__ == "__main__":
    main()
