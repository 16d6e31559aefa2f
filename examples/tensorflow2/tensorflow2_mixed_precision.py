"""Mixed precision, clipped and accumulated gradients in a loop of TensorFlow 2, with Keras 3."""

import argparse

import horovod.tensorflow as hvd
import tensorflow as tf


def main():
    args = parse()
    hvd.init()
    tf.keras.utils.set_random_seed(1)
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
    dataset = mnist_like(args.samples).shuffle(args.samples, seed=1)
    dataset = dataset.shard(hvd.size(), hvd.rank()).batch(args.batch_size).take(steps * passes)

    # Layers compute in half precision, and have their weights in single precision.
    tf.keras.config.set_dtype_policy("mixed_float16")
    model = tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            tf.keras.layers.Conv2D(8, 5, strides=2, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10, dtype="float32"),
        ]
    )
    # A step uses this many batches, so it takes that many times the learning rate of one.
    # Clipping is the optimizer's, which gets averaged gradients: the norm is that of the whole
    # batch.  It is not a hvd.DistributedOptimizer, which would average them a second time.
    optimizer = tf.keras.optimizers.SGD(
        args.lr * passes * hvd.size(), momentum=0.9, global_clipnorm=args.clip
    )
    optimizer = tf.keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)

    @tf.function
    def train_step(batches):
        """Add up the gradients of the passes on this rank, then average over all ranks once."""
        total, sums = 0.0, [tf.zeros_like(variable) for variable in model.trainable_variables]
        for images, labels in batches:
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels, model(images, training=True)
                )
                loss = tf.reduce_mean(losses) / passes
                scaled = optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, model.trainable_variables)
            sums = [one + other for one, other in zip(sums, gradients)]
            total += loss
        # Averages of all ranks: so all leave out a step that overflows on one.
        gradients = hvd.grouped_allreduce(sums, op=hvd.Average)
        optimizer.apply(gradients, model.trainable_variables)
        return total

    batches = iter(dataset.repeat())
    losses = []
    for epoch in range(1, args.epochs + 1):
        total = [train_step([next(batches) for _ in range(passes)]) for _ in range(steps)]
        # Every rank must take part in a reduction; one of them prints the result.
        losses.append(float(hvd.allreduce(tf.reduce_mean(total), name="loss", op=hvd.Average)))
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.6f}", flush=True)

    check(model, losses)
    if hvd.rank() == 0:
        print(f"{steps} steps an epoch, ranks with the same weights: {hvd.size()}", flush=True)
    hvd.shutdown()


def mnist_like(samples):
    """Ten patterns of 28 x 28 pixels, in much noise, and their numbers: the same on every rank."""
    generator = tf.random.Generator.from_seed(1)
    patterns = generator.normal((10, 28, 28, 1))
    labels = generator.uniform((samples,), maxval=10, dtype=tf.int64)
    noise = generator.normal((samples, 28, 28, 1))
    return tf.data.Dataset.from_tensor_slices((tf.gather(patterns, labels) + 4 * noise, labels))


def check(model, losses):
    """Fail, on every rank, if the ranks differ in weights or the loss has not fallen."""
    total = sum(weights.sum(dtype="float64") for weights in model.get_weights())
    if len(set(hvd.allgather_object(total))) > 1:
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
    parser.add_argument("--samples", type=int, default=8192, help="size of the data set")
    return parser.parse_args()


if __name__ == "__main__":
    main()
