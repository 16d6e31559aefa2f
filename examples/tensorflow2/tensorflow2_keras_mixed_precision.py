"""Mixed precision, clipped and accumulated gradients, and warm-up with fit() of Keras 3."""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import horovod.tensorflow.keras as hvd
import keras
import numpy as np
import tensorflow as tf
from horovod.tensorflow import allgather_object, broadcast_variables


def main():
    args = parse()
    hvd.init()
    keras.utils.set_random_seed(1)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        gpu = gpus[hvd.local_rank() % len(gpus)]
        tf.config.set_visible_devices(gpu, "GPU")
        tf.config.experimental.set_memory_growth(gpu, True)

    # Every rank takes the same number of steps, each of as many passes.
    passes = args.batches_per_allreduce
    steps = args.samples // hvd.size() // (args.batch_size * passes)
    if steps == 0:
        raise SystemExit("--samples: less than --batches-per-allreduce batches per rank")
    dataset = tf.data.Dataset.from_tensor_slices(mnist_like(args.samples))
    dataset = dataset.shuffle(args.samples, seed=1).shard(hvd.size(), hvd.rank())
    dataset = dataset.batch(args.batch_size).take(steps * passes)

    # Layers compute in half precision, and have their weights in single precision.
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(8, 5, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax", dtype="float32"),
        ]
    )

    # A step uses this many batches, so it takes that many times the learning rate of one.
    batches = passes * hvd.size()
    rate = args.lr * batches
    # Clipping is the optimizer's, which gets averaged gradients: the norm is that of the whole
    # batch.  Horovod has to know how many passes are a step, and that it is over their mean.
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(rate, momentum=0.9, global_clipnorm=args.clip),
        backward_passes_per_step=passes,
        average_aggregated_gradients=True,
    )
    # Around this optimizer, compile() puts one that scales the loss: all ranks leave out what
    # overflows on one.
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    broadcast_variables([*model.variables, *model.optimizer.variables], root_rank=0)

    # Every rank takes part in the average; one of them prints, after it.
    callbacks = [hvd.callbacks.MetricAverageCallback(), Print()]
    if args.warmup_epochs:
        # So high a rate is reached gradually.
        callbacks.append(hvd.callbacks.LearningRateWarmupCallback(rate, args.warmup_epochs))
    history = model.fit(
        dataset.repeat(),
        epochs=args.epochs,
        steps_per_epoch=steps * passes,
        callbacks=callbacks,
        verbose=0,
        shuffle=False,
    )
    check(model, history.history["loss"])
    if hvd.rank() == 0:
        print(f"{steps} steps an epoch, ranks with the same weights: {hvd.size()}", flush=True)
    hvd.shutdown()


class Print(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {logs['loss']:.6f}", flush=True)


def mnist_like(samples):
    """Ten patterns of 28 x 28 pixels, in much noise, and their numbers: the same on every rank."""
    random = np.random.default_rng(1)
    patterns = random.standard_normal((10, 28, 28, 1), dtype="float32")
    labels = random.integers(10, size=samples)
    noise = random.standard_normal((samples, 28, 28, 1), dtype="float32")
    return patterns[labels] + 4 * noise, labels


def check(model, losses):
    """Fail, on every rank, if the ranks differ in weights or the loss has not fallen."""
    total = sum(weights.sum(dtype="float64") for weights in model.get_weights())
    if len(set(allgather_object(total))) > 1:
        raise SystemExit("the ranks have different weights")
    if not losses[-1] <= losses[0]:
        raise SystemExit(f"the loss has not fallen: {losses}")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and pass")
    parser.add_argument(
        "--batches-per-allreduce", type=int, default=2, help="backward passes of a step"
    )
    parser.add_argument("--clip", type=float, default=1.0, help="largest norm of the gradients")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one batch")
    parser.add_argument("--warmup-epochs", type=int, default=1, help="until the rate of all ranks")
    parser.add_argument("--samples", type=int, default=8192, help="size of the data set")
    return parser.parse_args()


if __name__ == "__main__":
    main()
