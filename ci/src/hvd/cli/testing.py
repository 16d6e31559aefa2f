"""``./hvd test``: pytest in the tool's own virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import List

import typer

from hvd.cli.common import option
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.host import machine

#: Tiers of tests: the directories below ``tests``, in the order of tests/README.md.
TIERS = (
    *("unit", "spack", "build", "services", "compile", "bundle", "container", "emulated"),
    *("hosts", "rehearsal"),
)
#: Arguments of pytest that want one process, or say how many.
_ALONE = {"--pdb", "-s", "--collect-only", "--co", "-n"}
#: Processes at most: there are few groups that take long.
_MOST = 4


def run(require: str, arguments: List[str]) -> int:
    """Run pytest and return its exit status.

    Args:
        require: comma-separated tiers in which a skip is a failure.
        arguments: further arguments of pytest.
    """
    for tier in filter(None, require.split(",")):
        if tier not in TIERS:
            raise HvdError(f"--require: no tier is called '{tier}'", f"use {', '.join(TIERS)}")
    command = [sys.executable, "-m", "pytest", f"--require={require}"]
    if not _ALONE & set(arguments):
        processes = min(machine.cores(), _MOST)
        # in the order of collection: the group that takes longest is first, see tests/conftest.py
        command += ["-n", str(processes), "--dist=loadgroup", "--no-loadscope-reorder"]
    environment = {**os.environ, "PYTHONPATH": str(paths.SOURCE)}
    return subprocess.run([*command, *arguments], cwd=paths.ROOT, env=environment).returncode


def test(
    context: typer.Context,
    require: str = option(
        "--require TIER[,TIER]", f"Tiers in which a skip is a failure: {', '.join(TIERS)}."
    ),
) -> None:
    """Run the tests that this machine can run.

    Further arguments go to pytest: ./hvd test -k smoke
    """
    raise typer.Exit(run(require, context.args))
