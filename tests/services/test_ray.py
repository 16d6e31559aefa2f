"""Horovod on Ray: executors of fixed and of elastic size, in one Ray on this machine."""

from __future__ import annotations

import pathlib
import tempfile

import pytest

from hvd.core import paths
from tests import kept
from tests.build.examples import epochs
from tests.services import programs

PROGRAM = pathlib.Path(__file__).with_name("ray_parts.py")
EXAMPLE = paths.ROOT / "examples" / "ray" / "pytorch_ray_mnist.py"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="module")
def packages() -> pathlib.Path:
    return kept.packages("ray-packages", PROGRAM.with_name("requirements-ray.txt"))


@pytest.fixture(scope="module")
def outcomes(built_horovod, packages, tmp_path_factory) -> dict:
    place = tmp_path_factory.mktemp("ray")
    output = programs.run(built_horovod.target, PROGRAM, packages, place, **QUIET)
    return programs.outcomes(output)


@pytest.mark.parametrize("part", programs.names(PROGRAM))
def test_ray(outcomes, part):
    assert not outcomes[part], outcomes[part]


def test_the_example(built_horovod, packages, tmp_path):
    # below the tests' folder, the paths of Ray's sockets could get too long
    with tempfile.TemporaryDirectory(prefix="hvd-ray-") as folder:
        variables = {**QUIET, "RAY_TMPDIR": folder}
        output = programs.run(built_horovod.target, EXAMPLE, packages, tmp_path, **variables)
    losses = epochs(output, 2).losses
    assert list(losses) == [1, 2, 3, 4, 5] and losses[5] < losses[1] / 2, output
