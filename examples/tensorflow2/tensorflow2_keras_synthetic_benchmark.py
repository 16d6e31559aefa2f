"""Images per second that model.fit() of Keras trains with Horovod, without any data to read."""

import argparse
import os
import statistics
import time

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import horovod.tensorflow.keras as hvd
import keras
import tensorflow as tf
from horovod.tensorflow import allgather_object, broadcast_variables


def main():
    args = parse()
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if args.no_cuda or not gpus:
        tf.config.set_visible_devices([], "GPU")
        kind = "CPU"
    else:
        gpu = gpus[hvd.local_rank() % len(gpus)]
        tf.config.set_visible_devices(gpu, "GPU")
        tf.config.experimental.set_memory_growth(gpu, True)
        kind = "GPU"

    model = getattr(keras.applications, args.model)(weights=None)
    images = tf.random.uniform((args.batch_size, *model.input_shape[1:]))
    labels = tf.random.uniform((args.batch_size,), maxval=1000, dtype=tf.int64)
    # the same batch over and over
    dataset = tf.data.Dataset.from_tensors((images, labels)).cache().repeat()

    def rates(optimizer, printed=None):
        """Train with an optimizer; return the images per second of each iteration."""
        # XLA, which Keras 3 uses on GPUs, cannot compile Horovod's operations.
        model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
        if args.num_warmup_batches:
            model.fit(dataset, steps_per_epoch=args.num_warmup_batches, verbose=0)
        rate = Rate(args.batch_size * args.num_batches_per_iter, printed)
        steps = {"steps_per_epoch": args.num_batches_per_iter, "epochs": args.num_iters}
        model.fit(dataset, **steps, callbacks=[rate], verbose=0)
        return rate.found

    def log(text):
        if hvd.rank() == 0:
            print(text, flush=True)

    log(f"Model: {args.model}\nBatch size: {args.batch_size}\nNumber of {kind}s: {hvd.size()}")
    # What scaling is compared with: rank 0 trains alone, and the others wait for it where they
    # broadcast.  Any operation of Horovod in here would wait for them.
    if hvd.size() > 1 and hvd.rank() == 0:
        alone = rates(keras.optimizers.SGD(0.01))
        log(f"Img/sec of one {kind} alone: {spread(alone)}")

    # From here on, all ranks train: with the same weights, and gradients that are averaged.
    # Averages need the learning rate of the whole batch.
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = keras.optimizers.SGD(0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, compression=compression)
    optimizer.build(model.trainable_variables)
    broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)
    found = rates(optimizer, lambda i, rate: log(f"Iter #{i}: {rate:.1f} img/sec per {kind}"))
    log(f"Img/sec per {kind}: {spread(found)}")
    log(f"Total img/sec on {hvd.size()} {kind}(s): {spread(found, hvd.size())}")
    if hvd.size() > 1 and hvd.rank() == 0:
        scaling = statistics.mean(found) / statistics.mean(alone)
        log(f"Scaling: {scaling:.1%} of {hvd.size()} times one {kind} alone")

    # Ranks that part have not been trained together, however fast they were.
    total = sum(float(tf.reduce_sum(weights)) for weights in model.trainable_variables)
    if len(set(allgather_object(total))) > 1:
        raise SystemExit("the ranks have different weights")
    log(f"ranks with the same weights: {hvd.size()}")
    hvd.shutdown()


class Rate(keras.callbacks.Callback):
    """The images per second of each epoch."""

    def __init__(self, images, printed):
        super().__init__()
        self.images = images
        self.printed = printed
        self.found = []

    def on_epoch_begin(self, epoch, logs=None):
        self.begin = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        rate = self.images / (time.perf_counter() - self.begin)
        if self.printed:
            self.printed(len(self.found), rate)
        self.found.append(rate)


def spread(rates, factor=1):
    """Return the mean of the iterations, and 1.96 of their standard deviations."""
    mean, deviation = statistics.mean(rates), statistics.pstdev(rates)
    return f"{factor * mean:.1f} +-{factor * 1.96 * deviation:.1f}"


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    flag = parser.add_argument
    flag("--fp16-allreduce", action="store_true", help="send gradients in half precision")
    flag("--model", default="ResNet50", help="a model of keras.applications")
    flag("--batch-size", type=int, default=32, help="images per rank and step")
    flag("--num-warmup-batches", type=int, default=10, help="batches that do not count")
    flag("--num-batches-per-iter", type=int, default=10, help="batches of a measurement")
    flag("--num-iters", type=int, default=10, help="measurements")
    flag("--no-cuda", action="store_true", help="train on CPUs, where there are GPUs too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
