"""Run this project's tests with pytest, in the tool's own virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import List

from hvd import paths
from hvd.errors import HvdError

#: Tiers that need something of the machine.
TIERS = ("spack", "build", "compile")


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
    command = [sys.executable, "-m", "pytest", f"--require={','.join(wanted)}", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT / "ci")}
    return subprocess.run(command, cwd=paths.ROOT, env=environment).returncode
