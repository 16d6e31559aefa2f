"""The versions in ``ci/versions.yaml``: supported pairs, addresses, frameworks' requirements."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import Iterable, List, Mapping, Tuple

from hvd.core import schema
from hvd.core.errors import HvdError
from hvd.core.paths import VERSIONS, shorten

#: The set of requirements that every framework needs.
ALL = "all"


@dataclasses.dataclass(frozen=True)
class Pin:
    """A repository at a commit; ``version`` is its name among people."""

    version: str
    commit: str


@dataclasses.dataclass(frozen=True)
class Pair:
    """A Spack, and the builtin packages that it is tested with."""

    name: str
    spack: Pin
    packages: Pin


@dataclasses.dataclass(frozen=True)
class RequirementSet:
    """The needs of one framework: interpreters (PEP 440) and requirements (PEP 508)."""

    python: str
    requirements: Tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Framework:
    """The frameworks' virtual environment.

    Args:
        sets: by framework; `ALL` comes first, and every framework needs it.
        mpi: the requirement that brings an MPI.
        cmake: the requirement that brings CMake.
    """

    sets: Mapping[str, RequirementSet]
    mpi: str
    cmake: str

    def chosen(self, frameworks: Iterable[str]) -> List[RequirementSet]:
        """Return the sets for ``frameworks``, in the order of the file."""
        wanted = {ALL, *frameworks}
        unknown = sorted(wanted - set(self.sets))
        if unknown:
            raise HvdError(
                f"no version of {unknown[0]} is pinned in {shorten(VERSIONS)}",
                f"name an interpreter that has {unknown[0]} with --python",
            )
        return [each for name, each in self.sets.items() if name in wanted]


@dataclasses.dataclass(frozen=True)
class Images:
    """The base images to build and to run in, and their ``major.minor`` Python."""

    build: str
    run: str
    python: str


@dataclasses.dataclass(frozen=True)
class Container:
    """Base images by GPU stack (``cpu``, ``cuda``), and requirements of an MPI by its ABI."""

    images: Mapping[str, Images]
    mpi: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Versions:
    """The whole file."""

    git: Mapping[str, str]
    pairs: Tuple[Pair, ...]
    framework: Framework
    container: Container
    debian: Mapping[str, Tuple[str, ...]]

    def pair(self, name: str) -> Pair:
        """Return the pair called ``name``."""
        for pair in self.pairs:
            if pair.name == name:
                return pair
        raise HvdError(f"no pair of Spack and packages is called '{name}'", self.choices())

    def pairs_of(self, spack_version: str) -> List[Pair]:
        """Return the pairs whose Spack is ``spack_version`` (``major.minor``), best first."""
        return [pair for pair in self.pairs if pair.spack.version == spack_version]

    def choices(self) -> str:
        return "use one of " + ", ".join(pair.name for pair in self.pairs)


def load(path: pathlib.Path = VERSIONS) -> Versions:
    """Read ``ci/versions.yaml``."""
    return schema.structure(Versions, schema.read(path), path, "see the comments in the file")


@functools.cache
def pinned() -> Versions:
    """Return the versions of this checkout, read once."""
    return load()
