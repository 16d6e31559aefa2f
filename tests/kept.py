"""Virtual environments for tests, made once and kept in the cache."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from hvd.core import paths


def environment(name: str, requirements: pathlib.Path) -> pathlib.Path:
    """The virtual environment with pinned requirements; skips where pip cannot install them."""
    place = paths.cache() / name
    stamp = place / "requirements.txt"
    if not stamp.is_file() or stamp.read_bytes() != requirements.read_bytes():
        pip = [place / "bin" / "python", "-m", "pip"]
        for command in (
            [sys.executable, "-m", "venv", "--clear", place],
            [*pip, "install", "--require-hashes", "-r", requirements],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"pip does not install {requirements.name}: {done.stderr[-300:]}")
        stamp.write_bytes(requirements.read_bytes())
    return place
