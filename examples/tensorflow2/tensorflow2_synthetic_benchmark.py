"""Images per second that TensorFlow 2 and Horovod train, without any data to read."""

import argparse
import statistics
import timeit

import horovod.tensorflow as hvd
import tensorflow as tf


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

    model = getattr(tf.keras.applications, args.model)(weights=None)
    images = tf.random.uniform((args.batch_size, *model.input_shape[1:]))
    labels = tf.random.uniform((args.batch_size,), maxval=1000, dtype=tf.int64)
    # Averages need the learning rate of the whole batch.  Adasum needs that of one rank; on GPUs,
    # that of one node, because NCCL sums within each node first.
    scale = hvd.size()
    if args.use_adasum:
        scale = hvd.local_size() if kind == "GPU" and hvd.nccl_built() else 1
    optimizer = tf.keras.optimizers.SGD(0.01 * scale)
    optimizer.build(model.trainable_variables)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    op = hvd.Adasum if args.use_adasum else hvd.Average

    def make_step(distributed):
        @tf.function
        def step():
            with tf.GradientTape() as tape:
                predicted = model(images, training=True)
                loss = tf.keras.losses.sparse_categorical_crossentropy(labels, predicted)
                loss = tf.reduce_mean(loss)
            if distributed:
                tape = hvd.DistributedGradientTape(tape, compression=compression, op=op)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss

        return step

    def rates(step):
        """Yield the images per second of each iteration."""

        def batches(number):
            for _ in range(number):
                loss = step()
            loss.numpy()  # the GPU is behind the program

        if args.num_warmup_batches:
            batches(args.num_warmup_batches)
        for _ in range(args.num_iters):
            seconds = timeit.timeit(lambda: batches(args.num_batches_per_iter), number=1)
            yield args.batch_size * args.num_batches_per_iter / seconds

    def log(text):
        if hvd.rank() == 0:
            print(text, flush=True)

    log(f"Model: {args.model}\nBatch size: {args.batch_size}\nNumber of {kind}s: {hvd.size()}")
    # What scaling is compared with: rank 0 trains alone, and the others wait for it where they
    # broadcast.  Any operation of Horovod in here would wait for them.
    if hvd.size() > 1 and hvd.rank() == 0:
        alone = list(rates(make_step(distributed=False)))
        log(f"Img/sec of one {kind} alone: {spread(alone)}")

    # From here on, all ranks train: with the same weights, and gradients that are averaged.
    hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)
    found = []
    for rate in rates(make_step(distributed=True)):
        log(f"Iter #{len(found)}: {rate:.1f} img/sec per {kind}")
        found.append(rate)
    log(f"Img/sec per {kind}: {spread(found)}")
    log(f"Total img/sec on {hvd.size()} {kind}(s): {spread(found, hvd.size())}")
    if hvd.size() > 1 and hvd.rank() == 0:
        scaling = statistics.mean(found) / statistics.mean(alone)
        log(f"Scaling: {scaling:.1%} of {hvd.size()} times one {kind} alone")

    # Ranks that part have not been trained together, however fast they were.
    total = sum(float(tf.reduce_sum(weights)) for weights in model.trainable_variables)
    if len(set(hvd.allgather_object(total))) > 1:
        raise SystemExit("the ranks have different weights")
    log(f"ranks with the same weights: {hvd.size()}")
    hvd.shutdown()


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
    flag("--model", default="ResNet50", help="a model of tf.keras.applications")
    flag("--batch-size", type=int, default=32, help="images per rank and step")
    flag("--num-warmup-batches", type=int, default=10, help="batches that do not count")
    flag("--num-batches-per-iter", type=int, default=10, help="batches of a measurement")
    flag("--num-iters", type=int, default=10, help="measurements")
    flag("--no-cuda", action="store_true", help="train on CPUs, where there are GPUs too")
    flag("--use-adasum", action="store_true", help="combine gradients by Adasum, do not average")
    return parser.parse_args()


if __name__ == "__main__":
    main()
