"""Packages for tests, installed once and kept in the cache."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

from hvd.core import paths


def environment(name: str, requirements: pathlib.Path) -> pathlib.Path:
    """A virtual environment with pinned requirements; skips where pip cannot install them."""
    place = paths.cache() / name
    make = [sys.executable, "-m", "venv", "--clear", place]
    pip = [place / "bin" / "python", "-m", "pip", "install"]
    return _installed(place, requirements, make, pip)


def packages(name: str, requirements: pathlib.Path, *options: str) -> pathlib.Path:
    """A directory for PYTHONPATH with pinned requirements; skips as `environment`.

    Args:
        options: of pip.
    """
    place = paths.cache() / name
    pip = [sys.executable, "-m", "pip", "install", "--target", place, *options]
    return _installed(place, requirements, pip)


def _installed(place: pathlib.Path, requirements: pathlib.Path, *commands: list) -> pathlib.Path:
    """Run commands, of which the last is pip's, unless the same requirements are there."""
    stamp = place / "requirements.txt"
    if stamp.is_file() and stamp.read_bytes() == requirements.read_bytes():
        return place
    shutil.rmtree(place, ignore_errors=True)
    commands[-1].extend(["--require-hashes", "-r", requirements])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"pip does not install {requirements.name}: {done.stderr[-300:]}")
    stamp.write_bytes(requirements.read_bytes())
    return place
