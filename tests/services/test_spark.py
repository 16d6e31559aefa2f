"""Horovod on Spark: functions, elastic jobs and estimators, in one Spark on this machine."""

from __future__ import annotations

import pathlib

import pytest

from tests import kept
from tests.services import programs

pytestmark = pytest.mark.xdist_group("built")

PROGRAM = pathlib.Path(__file__).with_name("spark_parts.py")
#: PyArrow has no wheel of its version for newer Pythons, and is not built in a test.
BINARY = ("--only-binary", "pyarrow,numpy,pandas")


@pytest.fixture(scope="module")
def outcomes(built_horovod, tmp_path_factory) -> dict:
    pinned = PROGRAM.with_name("requirements-spark.txt")
    packages = kept.packages("spark-packages", pinned, *BINARY)
    place = tmp_path_factory.mktemp("spark")
    return programs.outcomes(built_horovod.target, PROGRAM, packages, place)


@pytest.mark.parametrize("part", programs.names(PROGRAM))
def test_spark(outcomes, part):
    assert not outcomes[part], outcomes[part]
