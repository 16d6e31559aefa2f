"""Starts the ranks of a smoke test in the workers of a Spark or a Ray that is on this host alone.

    python program_cluster.py spark --framework tensorflow --controller gloo --out DIR --ranks 2

The other arguments are those of `program`, which has to be importable in the workers as well.
"""

import argparse
import os
import sys
import tempfile
from typing import List

import program


def on_spark(arguments: argparse.Namespace, scratch: str) -> List[int]:
    """Run the ranks as tasks of Spark; return their exit statuses."""
    import horovod.spark
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master(f"local[{arguments.ranks}]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", scratch)
        .getOrCreate()
    )
    by = {f"use_{name}": arguments.controller == name for name in ("gloo", "mpi")}
    env = dict(os.environ)
    try:
        return horovod.spark.run(program.run, [arguments], num_proc=arguments.ranks, env=env, **by)
    finally:
        session.stop()


def on_ray(arguments: argparse.Namespace, scratch: str) -> List[int]:
    """Run the ranks in workers of Ray; return their exit statuses."""
    import ray
    from horovod.ray import RayExecutor

    local = {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "_temp_dir": scratch}
    ray.init(num_cpus=arguments.ranks, **local)
    try:
        settings = RayExecutor.create_settings()
        executor = RayExecutor(settings, num_workers=arguments.ranks, use_gpu=False)
        executor.start()
        statuses = executor.run(program.run, [arguments])
        executor.shutdown()
        return statuses
    finally:
        ray.shutdown()


if __name__ == "__main__":
    start = {"spark": on_spark, "ray": on_ray}[sys.argv.pop(1)]
    # below --out, the paths of Ray's sockets could get too long
    with tempfile.TemporaryDirectory(prefix="hvd-") as directory:
        sys.exit(max(start(program.parse(), directory)))
