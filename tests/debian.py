"""Programs of Debian packages, unpacked beside the system where it lacks them."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import Iterable, List, Sequence

from hvd.core import paths

_UPDATE = ["apt-get", "update", "--quiet"]


def unpacked(*packages: str, dependencies: bool = False) -> pathlib.Path:
    """A directory with the files of ``packages``, in the user's cache.

    Args:
        dependencies: and of those that they need and this machine lacks.

    Raises:
        OSError: they cannot be had; says why.
    """
    place = paths.cache() / "debian" / "-".join(packages)
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        whole = pathlib.Path(scratch, "root")
        extract(_with_dependencies(packages) if dependencies else packages, whole)
        try:
            os.replace(whole, place)
        except OSError:
            if not place.is_dir():  # else another process was faster
                raise
    return place


def _with_dependencies(packages: Sequence[str]) -> List[str]:
    """``packages`` and all that apt would install with them."""
    _require(packages[0])
    command = ["apt-get", "--simulate", "--no-install-recommends", "install", *packages]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            listed = _run(command, scratch)
        except OSError:
            _run(_UPDATE, scratch)
            listed = _run(command, scratch)
    installed = re.findall(r"^Inst (\S+)", listed, re.MULTILINE)
    return list(dict.fromkeys([*packages, *installed]))


def extract(packages: Iterable[str], directory: pathlib.Path) -> None:
    """Unpack ``packages`` below ``directory``; apt checks what it downloads against its keys.

    Raises:
        OSError: they cannot be had; says why.
    """
    packages = list(packages)
    _require(packages[0])
    with tempfile.TemporaryDirectory() as archives:
        try:
            _run(["apt-get", "download", *packages], archives)
        except OSError:
            # a machine that is new has no lists of packages
            _run(_UPDATE, archives)
            _run(["apt-get", "download", *packages], archives)
        for archive in pathlib.Path(archives).glob("*.deb"):
            _run(["dpkg", "-x", str(archive), str(directory)], archives)


def _require(package: str) -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise OSError(f"{package} is not installed, and there is no apt-get to have it by")


def _run(command: list, directory: str) -> str:
    """What ``command`` prints."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise OSError(f"`{' '.join(command)}`: {done.stderr.strip()}")
    return done.stdout
