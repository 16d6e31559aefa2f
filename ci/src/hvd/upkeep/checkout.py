"""A copy of this checkout, to try something in that nobody has asked to write."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import Dict, List

from hvd.core import paths
from hvd.core.errors import HvdError


def copy(destination: pathlib.Path) -> None:
    """Make ``destination`` a copy of what git tracks, or would track, as it is now.

    What ``./hvd`` has made below its ``.hvd`` is kept.

    Raises:
        HvdError: this checkout is none of git's.
    """
    words = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(["git", "-C", paths.ROOT, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise HvdError(
            f"{paths.ROOT}: {done.stderr.strip()}", "use a clone of this repository, made by git"
        )
    destination.mkdir(parents=True, exist_ok=True)
    for path in destination.iterdir():
        if path.name != ".hvd":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in filter(None, done.stdout.split("\0")):
        source, target = paths.ROOT / name, destination / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def command(*arguments: object) -> List[str]:
    """Return the command line of ``./hvd`` in a copy."""
    return [sys.executable, "-m", "hvd", *map(str, arguments)]


def variables(root: pathlib.Path) -> Dict[str, str]:
    """Return the environment for :func:`command` in the copy ``root``, whose state is its own."""
    own = {name: value for name, value in os.environ.items() if name != "HVD_STATE"}
    return {**own, "PYTHONPATH": str(root / "ci" / "src"), "PYTHONNOUSERSITE": "1"}
