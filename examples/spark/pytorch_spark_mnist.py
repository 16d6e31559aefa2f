"""Training a DataFrame of Spark with PyTorch and Horovod's TorchEstimator."""

import argparse
import os
import tempfile

import numpy as np
import torch
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator
from pyspark.ml.linalg import DenseVector
from pyspark.sql import SparkSession

QUIET = {"PYTHONWARNINGS": "ignore"}


def main():
    args = parse()
    # Each rank is a task of Spark, so there must be as many cores at the same time.
    builder = SparkSession.builder.master(args.master or f"local[{args.num_proc}]")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder.config(name, False)
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    frame = spark.createDataFrame(mnist_like(args.samples), ["features", "label"])
    train, test = frame.randomSplit([0.9, 0.1], seed=1)

    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 12 * 12, 10),
    )
    with tempfile.TemporaryDirectory() as here:
        # The estimator writes the data to this store as Parquet, and each rank reads its part.  On
        # several machines, all need to reach it: a shared directory, HDFS or S3.
        store = Store.create(args.work_dir or here)
        estimator = TorchEstimator(
            # The ranks have the environment of this program, and not all warnings of petastorm.
            backend=SparkBackend(args.num_proc, {**os.environ, **QUIET}, verbose=0),
            store=store,
            model=model,
            # Not hvd.DistributedOptimizer, and the learning rate of one rank: the estimator wraps
            # the optimizer, scales its rate by the number of ranks, and broadcasts.
            optimizer=torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9),
            loss=lambda output, label: torch.nn.functional.cross_entropy(output, label.long()),
            input_shapes=[[-1, 1, 28, 28]],
            feature_cols=["features"],
            label_cols=["label"],
            batch_size=args.batch_size,
            epochs=args.epochs,
            random_seed=1,
            verbose=0,
        )
        trained = estimator.fit(train)
        losses = [epoch["train"]["loss"] for epoch in trained.getHistory()]
        rows = trained.transform(test).select("label", "label__output").collect()
    spark.stop()

    for epoch, loss in enumerate(losses, 1):
        print(f"epoch {epoch}: loss {loss:.6f}")
    hits = sum(row["label"] == np.argmax(row["label__output"]) for row in rows)
    if not losses[-1] <= losses[0]:
        raise SystemExit(f"the loss has not fallen: {losses}")
    print(f"accuracy {hits / len(rows):.1%}, ranks: {args.num_proc}")


def mnist_like(samples):
    """Return rows of ten patterns of 28 x 28 pixels, in much noise, and their numbers."""
    random = np.random.default_rng(1)
    patterns = random.standard_normal((10, 28 * 28))
    labels = random.integers(10, size=samples)
    images = patterns[labels] + 4 * random.standard_normal((samples, 28 * 28))
    return [(DenseVector(image), int(label)) for image, label in zip(images, labels)]


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--num-proc", type=int, default=2, help="ranks")
    parser.add_argument("--master", help="of a Spark cluster; without it, this machine alone")
    parser.add_argument("--work-dir", help="the store; without it, a temporary directory")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank")
    parser.add_argument("--samples", type=int, default=2048, help="size of the data set")
    return parser.parse_args()


if __name__ == "__main__":
    main()
