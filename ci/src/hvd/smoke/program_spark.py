"""Starts the ranks of a smoke test as tasks of a Spark that is on this host alone.

    python program_spark.py --framework tensorflow --controller gloo --out DIR --ranks 2

The arguments are those of `program`, which is importable in the tasks as well.
"""

import os
import sys
import tempfile

import horovod.spark
import program
from pyspark.sql import SparkSession


def main() -> int:
    arguments = program.parse()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="hvd-spark-") as directory:
        session = (
            SparkSession.builder.master(f"local[{arguments.ranks}]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.local.dir", directory)
            .getOrCreate()
        )
        try:
            statuses = horovod.spark.run(
                program.run,
                [arguments],
                num_proc=arguments.ranks,
                use_gloo=arguments.controller == "gloo",
                use_mpi=arguments.controller == "mpi",
                env=dict(os.environ),
            )
        finally:
            session.stop()
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
