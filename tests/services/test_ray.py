"""Horovod on Ray: executors of fixed and of elastic size, in one Ray on this machine."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess

import pytest

from tests import kept

pytestmark = pytest.mark.xdist_group("built")

PROGRAM = pathlib.Path(__file__).with_name("ray_parts.py")
PARTS = [
    each.name
    for each in ast.parse(PROGRAM.read_text()).body
    if isinstance(each, ast.FunctionDef) and each.decorator_list
]


@pytest.fixture(scope="module")
def outcomes(built_horovod, tmp_path_factory) -> dict:
    """What became of each part: empty, or a trace."""
    target = built_horovod.target
    packages = kept.packages("ray-packages", PROGRAM.with_name("requirements-ray.txt"))
    # its daemons and workers are other processes
    path = [target.environment.get("PYTHONPATH", ""), str(packages)]
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, path)), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [target.python, PROGRAM],
        env={**target.environment, **variables},
        cwd=tmp_path_factory.mktemp("ray"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith('["'))


@pytest.mark.parametrize("part", PARTS)
def test_ray(outcomes, part):
    assert not outcomes[part], outcomes[part]
