"""Programs of Debian packages, unpacked beside the system where it lacks them."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Iterable

from hvd import paths


def unpacked(*packages: str) -> pathlib.Path:
    """A directory with the files of ``packages``, in the user's cache.

    Raises:
        OSError: they cannot be had; says why.
    """
    place = paths.cache() / "debian" / "-".join(packages)
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        whole = pathlib.Path(scratch, "root")
        extract(packages, whole)
        try:
            os.replace(whole, place)
        except OSError:
            if not place.is_dir():  # else another process was faster
                raise
    return place


def extract(packages: Iterable[str], directory: pathlib.Path) -> None:
    """Unpack ``packages`` below ``directory``; apt checks what it downloads against its keys.

    Raises:
        OSError: they cannot be had; says why.
    """
    packages = list(packages)
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise OSError(f"{packages[0]} is not installed, and there is no apt-get to have it by")
    with tempfile.TemporaryDirectory() as archives:
        try:
            _run(["apt-get", "download", *packages], archives)
        except OSError:
            # a machine that is new has no lists of packages
            _run(["apt-get", "update", "--quiet"], archives)
            _run(["apt-get", "download", *packages], archives)
        for archive in pathlib.Path(archives).glob("*.deb"):
            _run(["dpkg", "-x", str(archive), str(directory)], archives)


def _run(command: list, directory: str) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise OSError(f"`{' '.join(command)}`: {done.stderr.strip()}")
