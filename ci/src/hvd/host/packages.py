"""Debian packages, unpacked below a directory: their programs run without being installed."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import List, Sequence

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import kept


def unpacked(*packages: str, dependencies: bool = False) -> pathlib.Path:
    """Return a directory of the cache with the files of ``packages``.

    Args:
        dependencies: include those that they depend on and this machine lacks.

    Raises:
        HvdError: apt cannot fetch them.
    """

    def fill(directory: pathlib.Path) -> None:
        extract(with_dependencies(packages) if dependencies else packages, directory)

    return kept(paths.cache() / "debian" / "-".join(packages), fill)


def with_dependencies(packages: Sequence[str]) -> List[str]:
    """``packages`` and all that apt would install with them."""
    listed = _apt(["--simulate", "--no-install-recommends", "install", *packages])
    return list(dict.fromkeys([*packages, *re.findall(r"^Inst (\S+)", listed, re.MULTILINE)]))


def extract(packages: Sequence[str], directory: pathlib.Path) -> None:
    """Unpack ``packages`` below ``directory``; apt verifies what it downloads."""
    with tempfile.TemporaryDirectory() as archives:
        _apt(["download", *packages], archives)
        for archive in pathlib.Path(archives).glob("*.deb"):
            subprocess.run(["dpkg", "-x", archive, directory], check=True)


def _apt(arguments: Sequence[str], directory: str = ".") -> str:
    """The output of apt-get, which updates its lists of packages if need be."""
    for program in ("apt-get", "dpkg"):
        if not shutil.which(program):
            raise HvdError(f"{arguments[-1]} is a Debian package: {program} is not on PATH")
    for update in (False, True):
        if update:
            subprocess.run(["apt-get", "update", "--quiet"], capture_output=True, timeout=300)
        done = subprocess.run(
            ["apt-get", *arguments], cwd=directory, capture_output=True, text=True, timeout=300
        )
        if done.returncode == 0:
            return done.stdout
    raise HvdError(f"`apt-get {' '.join(arguments)}`: {done.stderr.strip()}")
