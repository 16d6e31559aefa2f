"""Tiers that are required, and what is said of one that is missing."""

import os
import subprocess
import sys

import pytest

from hvd.core import paths


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_required_tier_of_which_nothing_is_asked_for_is_an_error(processes):
    """Also where several processes run the tests, which must not seem to have crashed."""
    command = [sys.executable, "-m", "pytest", "--require=build", "-n", processes]
    own = ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID")
    done = subprocess.run(
        [*command, "--dist=loadscope", "tests/unit/test_stamp.py"],
        cwd=paths.ROOT,
        env={k: v for k, v in os.environ.items() if k not in own},
        capture_output=True,
        text=True,
    )
    output = done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, output
    assert "ERROR: no test of the required tier 'build' was collected" in output
    assert "INTERNALERROR" not in output
