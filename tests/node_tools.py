"""Programs for Node.js, in the versions and with the checksums of tests/node."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import Optional, Sequence

import pytest

from hvd.core import paths, stamp
from hvd.core.files import kept

LOCK = paths.ROOT / "tests" / "node"


def path() -> str:
    """PATH with a Node.js: the system's, or one that pip installs in the cache; or skips."""
    if shutil.which("node") and shutil.which("npm"):
        return os.environ["PATH"]
    place = paths.cache() / "node" / f"nodejs-{stamp.of(LOCK / 'requirements.txt')[:16]}"
    if not (place / "whole").is_file():
        stamp.clear(place)
        _run([sys.executable, "-m", "venv", place])
        requirements = ["--require-hashes", "-r", LOCK / "requirements.txt"]
        _run([place / "bin" / "python", "-m", "pip", "install", *requirements])
        (place / "whole").touch()
    return os.pathsep.join([str(place / "bin"), os.environ["PATH"]])


def installed() -> pathlib.Path:
    """The directory of the programs, which need :func:`path`; skips where npm fetches none."""

    def fill(directory: pathlib.Path) -> None:
        shutil.copytree(LOCK, directory, dirs_exist_ok=True)
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], directory, path())

    place = paths.cache() / "node" / stamp.of(LOCK / "package-lock.json")[:16]
    return kept(place, fill) / "node_modules" / ".bin"


def _run(
    command: Sequence[object], directory: pathlib.Path = LOCK, path: Optional[str] = None
) -> None:
    """Run ``command``, and skip where it fails."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PATH": path or os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        pytest.skip(f"`{' '.join(map(str, command))}`: {done.stderr.strip()}")
