"""Ranks that Spark and Ray start, with stand-ins for them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys

from hvd.smoke import run
from hvd.smoke.launch import PROGRAM, Target, launchers
from tests.unit.smoking import MPI_ONLY

#: To be added to `tests.unit.smoking.LAUNCHER`: how it was called.
SAY_ALL = """
print(json.dumps({"words": sys.argv[1:], "path": os.environ["PYTHONPATH"]}))
"""

CLUSTERS = dataclasses.replace(
    MPI_ONLY, controllers=frozenset({"mpi", "gloo"}), extras=frozenset({"spark", "ray"})
)


def test_spark_and_ray_start_ranks_themselves(target: Target, tmp_path) -> None:
    python = tmp_path / "bin" / "python"
    python.write_text((tmp_path / "bin" / "mpirun").read_text() + SAY_ALL)
    python.chmod(0o755)
    environ = {**target.environment, "PYTHONPATH": "/site", "JAVA_HOME": "/opt/java"}
    found = [each for each in launchers(CLUSTERS) if each.cluster]
    assert [each.name for each in found] == [
        *("horovod.spark.run, Gloo", "horovod.spark.run, MPI", "RayExecutor")
    ]
    for launcher, program in zip(found, ["program_spark.py"] * 2 + ["program_ray.py"]):
        check = run.run_launcher(launcher, Target(python, environ), tmp_path / launcher.name)
        assert check.failures == []
        said = json.loads(check.log.read_text().splitlines()[-1])
        assert pathlib.Path(said["words"][0]) == PROGRAM.with_name(program)
        assert said["words"][said["words"].index("--controller") + 1] == launcher.controller
        # the workers import the program
        assert said["path"] == f"{PROGRAM.parent}:/site"


def test_spark_starts_ranks_with_open_mpi_alone(target: Target, tmp_path) -> None:
    for banner, reason in (
        ("mpirun (Open MPI) 4.1.8", ""),
        ("HYDRA build details:\n    Version: 5.0.2", "this one is of mpich"),
    ):
        script = tmp_path / "bin" / "mpirun"
        script.write_text(f"#!{sys.executable}\nprint({banner!r})\n")
        plan = run.smoke_plan(target, CLUSTERS, tmp_path / "out")
        assert ("horovod.spark.run, MPI" in dict(plan)) == (not reason)
        assert "horovod.spark.run, Gloo" in dict(plan)
        left_out = plan[0][1]().details.get("left_out", [])
        assert [row["operation"] for row in left_out] == ["horovod.spark.run, MPI"] * bool(reason)
        assert all(row["reason"].endswith(reason) for row in left_out)


def test_spark_asks_for_java(target: Target, tmp_path) -> None:
    spark = next(each for each in launchers(CLUSTERS) if each.cluster == "spark")
    (failure,) = run.run_launcher(spark, target, tmp_path / "out").failures
    assert failure.startswith("java is not on the PATH")
