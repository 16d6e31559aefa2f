"""Distributed training with TensorFlow 2 and Horovod; ``python train.py --help``."""

import argparse
import time

import horovod.tensorflow as hvd
import tensorflow as tf

FEATURES, CLASSES = 32, 10


def synthetic(samples):
    """Points around one centre per class; the same on every rank."""
    generator = tf.random.Generator.from_seed(1)
    centres = generator.normal((CLASSES, FEATURES))
    labels = generator.uniform((samples,), maxval=CLASSES, dtype=tf.int32)
    points = tf.gather(centres, labels) + 2 * generator.normal((samples, FEATURES))
    return tf.data.Dataset.from_tensor_slices((points, labels))


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

    # Each rank reads its own part of the data, which every rank shuffles the same way.
    steps = args.samples // hvd.size() // args.batch_size
    if steps == 0:
        raise SystemExit("--samples: less than one batch per rank")
    dataset = synthetic(args.samples).shuffle(args.samples, seed=args.seed)
    dataset = dataset.shard(hvd.size(), hvd.rank()).batch(args.batch_size).take(steps)

    model = tf.keras.Sequential(
        [
            tf.keras.Input((FEATURES,)),
            tf.keras.layers.Dense(args.hidden, activation="relu"),
            tf.keras.layers.Dense(CLASSES),
        ]
    )

    # 3. Scale the learning rate, because a step now uses hvd.size() batches; train_step below
    #    wraps the gradient tape.
    optimizer = tf.keras.optimizers.SGD(args.lr * hvd.size(), momentum=0.9)
    optimizer.build(model.trainable_variables)

    # 4. Broadcast from rank 0, the only one to read the checkpoint, so that all ranks start equal.
    epoch = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
    manager = tf.train.CheckpointManager(checkpoint, args.checkpoint, max_to_keep=1)
    if hvd.rank() == 0:
        manager.restore_or_initialize()
        # the checkpoint's rate is for its number of ranks
        optimizer.learning_rate = args.lr * hvd.size()
    state = [epoch, *model.variables, *optimizer.variables]
    hvd.broadcast_variables(state, root_rank=0)

    @tf.function
    def train_step(points, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model(points, training=True)
            )
            loss = tf.reduce_mean(losses)
        # The wrapped tape averages the gradients over the ranks.
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    # One iterator for all epochs, each in its own order: ending an iterator takes up to a second.
    batches = iter(dataset.repeat().skip(int(epoch) * steps).prefetch(tf.data.AUTOTUNE))
    while epoch < args.epochs:
        epoch.assign_add(1)
        begin = time.perf_counter()
        loss = tf.reduce_mean([train_step(*next(batches)) for _ in range(steps)])
        # Every rank must take part in a reduction; one of them prints the result.
        loss = hvd.allreduce(loss, name="loss", op=hvd.Average)
        rate = steps * args.batch_size * hvd.size() / (time.perf_counter() - begin)
        if hvd.rank() == 0:
            print(f"epoch {int(epoch)}: loss {float(loss):.6f}, {rate:.0f} samples/s", flush=True)
            # 5. Checkpoint on rank 0: the others have the same weights.
            manager.save()
    hvd.shutdown()


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5, help="total, with the checkpoint's")
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step")
    parser.add_argument("--hidden", type=int, default=128, help="units of the hidden layer")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one rank")
    parser.add_argument("--samples", type=int, default=8192, help="size of the data set")
    parser.add_argument("--seed", type=int, default=1, help="for the initial weights")
    parser.add_argument(
        "--checkpoint",
        default="checkpoint",
        help="directory, written each epoch; resumed if it exists",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
