"""Distributed training with a loop of TensorFlow 2, a gradient tape, and Horovod."""

import argparse
import time

import horovod.tensorflow as hvd
import tensorflow as tf


def main():
    args = parse()

    # 1. Initialise: from now on, this process is one rank of hvd.size().
    hvd.init()
    tf.keras.utils.set_random_seed(args.seed)

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

    model = tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            tf.keras.layers.Conv2D(8, 5, strides=2, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )

    # 3. Scale the learning rate, because a step now uses hvd.size() batches; train_step below
    #    wraps the gradient tape.
    optimizer = tf.keras.optimizers.SGD(args.lr * hvd.size(), momentum=0.9)
    optimizer.build(model.trainable_variables)

    # 4. Broadcast from rank 0, the only one to read the checkpoint, so that all ranks start equal.
    epoch = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
    manager = None
    if args.checkpoint and hvd.rank() == 0:
        manager = tf.train.CheckpointManager(checkpoint, args.checkpoint, max_to_keep=1)
        manager.restore_or_initialize()
        # the checkpoint's rate is for its number of ranks
        optimizer.learning_rate = args.lr * hvd.size()
    state = [epoch, *model.variables, *optimizer.variables]
    hvd.broadcast_variables(state, root_rank=0)

    @tf.function
    def train_step(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model(images, training=True)
            )
            loss = tf.reduce_mean(losses)
        # The wrapped tape averages the gradients over the ranks.
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    # One iterator for all epochs, each in its own order: ending an iterator takes up to a second.
    batches = iter(dataset.repeat().skip(int(epoch) * steps).prefetch(tf.data.AUTOTUNE))
    losses = []
    while epoch < args.epochs:
        epoch.assign_add(1)
        begin = time.perf_counter()
        loss = tf.reduce_mean([train_step(*next(batches)) for _ in range(steps)])
        # Every rank must take part in a reduction, and one of them prints the result: called on
        # rank 0 only, hvd.allreduce() would wait for the others for ever.
        losses.append(float(hvd.allreduce(loss, name="loss", op=hvd.Average)))
        rate = steps * args.batch_size * hvd.size() / (time.perf_counter() - begin)
        if hvd.rank() == 0:
            print(f"epoch {int(epoch)}: loss {losses[-1]:.6f}, {rate:.0f} images/s", flush=True)
            # 5. Checkpoint on rank 0: the others have the same weights.
            if manager:
                manager.save()

    # Every rank validates its part, too.
    part = slice(args.samples + hvd.rank(), None, hvd.size())
    found = tf.argmax(model(images[part]), axis=1)
    hits = tf.reduce_sum(tf.cast(found == labels[part], tf.int32))
    accuracy = int(hvd.allreduce(hits, name="hits", op=hvd.Sum)) / args.test_samples
    check(model, losses)
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.1%}, ranks with the same weights: {hvd.size()}", flush=True)
    hvd.shutdown()


def mnist_like(samples):
    """Ten patterns of 28 x 28 pixels, in much noise, and their numbers: the same on every rank."""
    generator = tf.random.Generator.from_seed(1)
    patterns = generator.normal((10, 28, 28, 1))
    labels = generator.uniform((samples,), maxval=10, dtype=tf.int64)
    noise = generator.normal((samples, 28, 28, 1))
    return tf.gather(patterns, labels) + 4 * noise, labels


def check(model, losses):
    """Fail, on every rank, if the ranks differ in weights or the loss has not fallen."""
    total = sum(weights.sum(dtype="float64") for weights in model.get_weights())
    if len(set(hvd.allgather_object(total))) > 1:
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
    parser.add_argument("--samples", type=int, default=8192, help="images to train with")
    parser.add_argument("--test-samples", type=int, default=1024, help="images to validate with")
    parser.add_argument("--seed", type=int, default=1, help="for weights and order of data")
    parser.add_argument("--checkpoint", help="directory, written each epoch; resumed if it exists")
    return parser.parse_args()


if __name__ == "__main__":
    main()
