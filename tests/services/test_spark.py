"""Horovod on Spark: functions, elastic jobs and estimators, in one Spark on this machine."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess

import pytest

from tests import kept

pytestmark = pytest.mark.xdist_group("built")

PROGRAM = pathlib.Path(__file__).with_name("spark_parts.py")
PARTS = [
    each.name
    for each in ast.parse(PROGRAM.read_text()).body
    if isinstance(each, ast.FunctionDef) and each.decorator_list
]


@pytest.fixture(scope="module")
def outcomes(built_horovod, tmp_path_factory) -> dict:
    """What became of each part: empty, or a trace."""
    target = built_horovod.target
    # PyArrow has no wheel of this version for newer Pythons, and is not built in a test
    binary = ["--only-binary", "pyarrow,numpy,pandas"]
    pinned = PROGRAM.with_name("requirements-spark.txt")
    packages = kept.packages("spark-packages", pinned, *binary)
    path = [target.environment.get("PYTHONPATH", ""), str(packages)]
    done = subprocess.run(
        [target.python, PROGRAM],
        env={**target.environment, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        cwd=tmp_path_factory.mktemp("spark"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith('["'))


@pytest.mark.parametrize("part", PARTS)
def test_spark(outcomes, part):
    assert not outcomes[part], outcomes[part]
