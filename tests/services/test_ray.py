"""Horovod on Ray: executors of fixed and of elastic size, in one Ray on this machine."""

from __future__ import annotations

import pathlib

import pytest

from tests import kept
from tests.services import programs

pytestmark = pytest.mark.xdist_group("built")

PROGRAM = pathlib.Path(__file__).with_name("ray_parts.py")


@pytest.fixture(scope="module")
def outcomes(built_horovod, tmp_path_factory) -> dict:
    packages = kept.packages("ray-packages", PROGRAM.with_name("requirements-ray.txt"))
    place, quiet = tmp_path_factory.mktemp("ray"), {"RAY_USAGE_STATS_ENABLED": "0"}
    return programs.outcomes(built_horovod.target, PROGRAM, packages, place, **quiet)


@pytest.mark.parametrize("part", programs.names(PROGRAM))
def test_ray(outcomes, part):
    assert not outcomes[part], outcomes[part]
