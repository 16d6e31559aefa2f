"""Programs for Node.js, in the versions and with the checksums of tests/node."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import List

from hvd.core import paths, stamp

LOCK = paths.ROOT / "tests" / "node"


def path() -> str:
    """PATH with a Node.js: the system's, or one in the user's cache.

    Raises:
        OSError: it cannot be had; says why.
    """
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
    """The directory of the programs, in the user's cache; they need :func:`path`.

    Raises:
        OSError: they cannot be had; says why.
    """
    place = paths.cache() / "node" / stamp.of(LOCK / "package-lock.json")[:16]
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
            whole = pathlib.Path(scratch, "whole")
            shutil.copytree(LOCK, whole)
            _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], whole)
            try:
                os.replace(whole, place)
            except OSError:
                if not place.is_dir():  # else another process was faster
                    raise
    return place / "node_modules" / ".bin"


def _run(command: List[object], directory: pathlib.Path = LOCK) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=directory,
        env={**os.environ, "PATH": path() if words[0] == "npm" else os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise OSError(f"`{' '.join(words)}`: {done.stderr.strip()}")
