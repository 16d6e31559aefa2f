"""Tiers: each has a directory and a row in tests/README.md; a required one must run."""

import os
import re
import subprocess
import sys

import pytest

from hvd.cli.testing import TIERS
from hvd.core import paths
from tests.conftest import PART_OF

#: A test of the tier `compile` that is skipped where no variable names an interpreter.
LACKING = "tests/compile/test_builds.py"


def run(processes, *arguments):
    """Exit status and output of pytest, in one process (0) or in several."""
    own = ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID")
    environment = {k: v for k, v in os.environ.items() if k not in (*own, "HVD_CUDA_PYTHON")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", processes, "--dist=loadgroup", *arguments],
        cwd=paths.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def test_a_tier_is_a_directory_and_a_row():
    tests = paths.ROOT / "tests"
    text = (tests / "README.md").read_text()
    directories = {path.parent.name for path in tests.glob("*/test_*.py")}
    assert {PART_OF.get(each, each) for each in directories} == set(TIERS)
    rows = re.findall(r"^\| `(\w+)` \| `tests/(\w+)/` \|", text, re.MULTILINE)
    assert rows == [(tier, tier) for tier in TIERS]


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_required_tier_that_is_not_asked_for_is_an_error(processes):
    status, output = run(processes, "--require=build", "tests/unit/test_core.py")
    assert status == pytest.ExitCode.USAGE_ERROR, output
    assert "ERROR: the required tier 'build' is not asked for" in output
    assert "INTERNALERROR" not in output


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_skip_in_a_required_tier_is_a_failure_with_its_reason(processes):
    status, output = run(processes, "--require=compile", LACKING)
    assert status == pytest.ExitCode.TESTS_FAILED, output
    assert "HVD_CUDA_PYTHON names no Python" in output and "1 error" in output


def test_a_tier_that_nobody_asked_for_is_skipped_with_a_reason_and_counted():
    status, output = run("0", "-k", "test_tensorflow_examples")
    assert status == pytest.ExitCode.OK, output
    assert re.search(r"SKIPPED \[2\] .*--require compile", output) and "2 skipped" in output
    assert "The rest: ./hvd test --require" in output


def test_one_process_runs_a_group(tmp_path):
    """Or each makes its own builds: https://github.com/pytest-dev/pytest-xdist/issues/1386."""
    for name in ("one", "other"):
        (tmp_path / f"test_{name}.py").write_text(
            "import pytest\n"
            "@pytest.mark.xdist_group('shared')\n"
            "@pytest.mark.parametrize('number', range(4))\n"
            "def test(number):\n"
            "    pass\n"
        )
    status, output = run("2", "-v", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path))
    processes = re.findall(r"^\[(gw\d)\].* PASSED", output, re.MULTILINE)
    assert status == 0 and len(processes) == 8 and len(set(processes)) == 1, output


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_failure_shows_what_a_command_printed_last(tmp_path, processes):
    (tmp_path / "test_command.py").write_text(
        "from hvd.core import process\n"
        "def test(tmp_path):\n"
        "    process.run(['sh', '-c', 'echo $((40 + 2)) causes; exit 3'], log=tmp_path/'log')\n"
    )
    options = ["-p", "no:cacheprovider", "-p", "tests.failures", "-c", os.devnull]
    status, output = run(processes, *options, str(tmp_path))
    assert status == pytest.ExitCode.TESTS_FAILED, output
    assert "42 causes" in output
