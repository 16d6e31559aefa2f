"""Programs of Debian packages, unpacked in the cache: they run without being installed."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Sequence

from elftools.elf.elffile import ELFFile

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import kept
from tests import needs


def unpacked(*packages: str, dependencies: bool = False) -> pathlib.Path:
    """Return a directory with the files of packages; skips where apt cannot fetch them.

    Args:
        dependencies: include those that they depend on and this machine lacks.
    """

    def fill(directory: pathlib.Path) -> None:
        wanted = list(packages)
        if dependencies:
            listed = _apt(["--simulate", "--no-install-recommends", "install", *packages])
            wanted += re.findall(r"^Inst (\S+)", listed, re.MULTILINE)
        extract(wanted, directory)

    with needs.provided():
        return kept(paths.cache() / "debian" / "-".join(packages), fill)


def extract(packages: Sequence[str], directory: pathlib.Path) -> None:
    """Unpack packages below ``directory``; apt verifies what it downloads."""
    with tempfile.TemporaryDirectory() as archives:
        _apt(["download", *dict.fromkeys(packages)], archives)
        for archive in pathlib.Path(archives).glob("*.deb"):
            subprocess.run(["dpkg", "-x", archive, directory], check=True)


def loader() -> str:
    """Return the program that loads this machine's programs: that of this Python."""
    with open(sys.executable, "rb") as file:
        return next(ELFFile(file).iter_segments("PT_INTERP")).get_interp_name()


def _apt(arguments: Sequence[str], directory: str = ".") -> str:
    """Return the output of apt-get, which updates its lists of packages if need be."""
    for program in ("apt-get", "dpkg"):
        if not shutil.which(program):
            raise HvdError(f"{arguments[-1]} is a Debian package: {program} is not on PATH")
    keywords = {"capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run(["apt-get", *arguments], cwd=directory, **keywords)
    if done.returncode:
        subprocess.run(["apt-get", "update", "--quiet"], **keywords)
        done = subprocess.run(["apt-get", *arguments], cwd=directory, **keywords)
    if done.returncode:
        raise HvdError(f"`apt-get {' '.join(arguments)}`: {done.stderr.strip()}")
    return done.stdout
