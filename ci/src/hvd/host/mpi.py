"""Find the MPI that is installed: its Spack name, version and prefix."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
from typing import Dict, List, Optional, Pattern, Sequence, Tuple

from hvd.core.errors import HvdError

#: What ``mpirun --version`` says, by Spack package.
_VERSIONS = (
    ("openmpi", re.compile(r"\(Open MPI\) (\d+(?:\.\d+)+)")),
    ("mpich", re.compile(r"HYDRA build details:\s+Version:\s+(\d+(?:\.\d+)+)")),
    ("intel-mpi", re.compile(r"Intel\(R\) MPI Library .*Version (\d+(?:\.\d+)+)")),
)
#: What ``MPI_Get_library_version`` says, by Spack package.
_LIBRARY_VERSIONS = (
    ("openmpi", re.compile(r"^Open MPI v(\d+(?:\.\d+)+)")),
    ("mpich", re.compile(r"^MPICH Version:\s+(\d+(?:\.\d+)+)")),
    ("intel-mpi", re.compile(r"^Intel\(R\) MPI Library (\d+(?:\.\d+)+)")),
)


@dataclasses.dataclass(frozen=True)
class Mpi:
    """An installed MPI: Spack's name of the package, its version and its prefix."""

    package: str
    version: str
    prefix: pathlib.Path

    @property
    def bin(self) -> pathlib.Path:
        return self.prefix / "bin"

    @property
    def variables(self) -> Dict[str, str]:
        """What it needs in the environment to build and to run."""
        # its compiler wrappers know their place by this alone
        if self.package == "intel-mpi":
            return {"I_MPI_ROOT": str(self.prefix)}
        # a rank that no mpirun started looks for the rest of it where it was built for
        if self.package == "openmpi" and self._moved():
            return {"OPAL_PREFIX": str(self.prefix)}
        return {}

    def _moved(self) -> bool:
        """Whether an Open MPI is elsewhere than where it was built for, as in a wheel."""
        environment = {k: v for k, v in os.environ.items() if k != "OPAL_PREFIX"}
        try:
            said = subprocess.run(
                [self.bin / "ompi_info", "--parsable", "--path", "prefix"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return False
        _, found, place = said.strip().partition("path:prefix:")
        return bool(found) and not os.path.isdir(place)


def search_path(first: Sequence[pathlib.Path] = ()) -> str:
    """``PATH`` with the directories ``first`` in front."""
    return os.pathsep.join([*map(str, first), os.environ.get("PATH", os.defpath)])


def find(path: Optional[str] = None) -> Optional[Mpi]:
    """The MPI whose compiler wrapper comes first on ``path``; None where there is none.

    An ``mpirun`` without an ``mpicxx`` beside it can run programs but build none, and is
    passed over.

    Raises:
        HvdError: there is one, but of a kind that is not known here.
    """
    unknown: List[str] = []
    for directory in (path if path is not None else search_path()).split(os.pathsep):
        wrapper = shutil.which("mpicxx", path=directory)
        launcher = shutil.which("mpirun", path=directory)
        if not wrapper or not launcher:
            continue
        kind = of_launcher(launcher)
        if kind:
            # <prefix>/bin/mpirun; a link into another tree is the tree's own business
            return Mpi(*kind, pathlib.Path(launcher).parent.parent)
        unknown.append(launcher)
    if unknown:
        raise HvdError(
            f"{unknown[0]} is an MPI that is not known here",
            "put an Open MPI, MPICH or Intel MPI before it on PATH, or declare it in a "
            "packages.yaml by hand",
        )
    return None


def of_launcher(launcher: str) -> Optional[Tuple[str, str]]:
    """Package and version of the MPI that the ``mpirun`` at ``launcher`` says it is of."""
    # Intel MPI's looks for its other half on PATH
    path = f"{os.path.dirname(launcher)}{os.pathsep}{search_path()}"
    banner = subprocess.run(
        [launcher, "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": path},
    ).stdout
    return _kind(banner, _VERSIONS)


def of_library(text: str) -> Optional[Tuple[str, str]]:
    """Package and version in what ``MPI_Get_library_version`` gave."""
    return _kind(text, _LIBRARY_VERSIONS)


def _kind(text: str, patterns: Sequence[Tuple[str, Pattern[str]]]) -> Optional[Tuple[str, str]]:
    for package, pattern in patterns:
        match = pattern.search(text)
        if match:
            return package, match[1]
    return None
