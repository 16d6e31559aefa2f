"""``./hvd test``: pytest in the tool's own virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import List

import typer

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.host import machine

#: Tiers that need something of the machine.
TIERS = ("spack", "build", "services", "bundle", "compile", "container")
#: Arguments of pytest that want one process.
_ALONE = {"--pdb", "-s", "--collect-only", "--co", "-n"}
#: Processes at most: there are few groups that take long.
_MOST = 4


def run(require: str, arguments: List[str]) -> int:
    """Run pytest.

    Args:
        require: comma-separated tiers that must not be skipped.
        arguments: further arguments of pytest.

    Returns:
        pytest's exit status.

    Raises:
        HvdError: an unknown tier.
    """
    wanted = [tier for tier in require.split(",") if tier]
    unknown = sorted(set(wanted) - set(TIERS))
    if unknown:
        raise HvdError(f"--require: no tier is called '{unknown[0]}'", f"use {', '.join(TIERS)}")
    command = [sys.executable, "-m", "pytest", f"--require={','.join(wanted)}"]
    if not _ALONE & set(arguments):
        # by groups, see tests/conftest.py: what shares a build is run by one process
        command += ["-n", str(min(machine.cores(), _MOST)), "--dist=loadscope"]
        command += ["--no-loadscope-reorder"]
    command += arguments
    environment = {**os.environ, "PYTHONPATH": str(paths.SOURCE)}
    return subprocess.run(command, cwd=paths.ROOT, env=environment).returncode


def test(
    context: typer.Context,
    require: str = typer.Option(
        "",
        "--require",
        metavar="TIER[,TIER]",
        help=f"Tiers in which a skip is a failure: {', '.join(TIERS)}.",
    ),  # fmt: skip
) -> None:
    """Run the tests that this machine can run.

    Further arguments go to pytest: ./hvd test -k smoke
    """
    raise typer.Exit(run(require, context.args))
