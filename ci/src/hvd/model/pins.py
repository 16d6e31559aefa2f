"""What ``ci/versions.yaml`` says: supported pairs, addresses, the frameworks' requirements."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import Any, Dict, Iterable, List, Mapping, Tuple

import yaml

from hvd.core.errors import HvdError
from hvd.core.paths import VERSIONS, shorten

#: The set of requirements that every framework needs.
ALL = "all"


@dataclasses.dataclass(frozen=True)
class Pin:
    """One repository at one commit; ``version`` is what people call it."""

    version: str
    commit: str


@dataclasses.dataclass(frozen=True)
class Pair:
    """A Spack and the builtin packages that it is tested with."""

    name: str
    spack: Pin
    packages: Pin


@dataclasses.dataclass(frozen=True)
class RequirementSet:
    """What one framework needs: interpreters (PEP 440) and requirements (PEP 508)."""

    python: str
    requirements: Tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Framework:
    """The frameworks' virtual environment.

    Args:
        sets: what is needed, by framework; `ALL` comes first and is needed by each.
        mpi: the requirement that brings an MPI.
        cmake: the requirement that brings CMake.
    """

    sets: Mapping[str, RequirementSet]
    mpi: str
    cmake: str

    def chosen(self, frameworks: Iterable[str]) -> List[RequirementSet]:
        """The sets for ``frameworks``, in the order of the file.

        Raises:
            HvdError: one of them has no set.
        """
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
    """What a container image is built in and what it runs in, and their ``major.minor`` Python."""

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
        """The pair called ``name``.

        Raises:
            HvdError: there is none.
        """
        for pair in self.pairs:
            if pair.name == name:
                return pair
        raise HvdError(f"no pair of Spack and packages is called '{name}'", self.choices())

    def pairs_of(self, spack_version: str) -> List[Pair]:
        """The pairs whose Spack is ``spack_version`` (``major.minor``), best first."""
        return [pair for pair in self.pairs if pair.spack.version == spack_version]

    def choices(self) -> str:
        return "use one of " + ", ".join(pair.name for pair in self.pairs)


def load(path: pathlib.Path = VERSIONS) -> Versions:
    """Read the pins.

    Raises:
        HvdError: the file lacks a key or is no YAML; names file and key.
    """
    try:
        data = yaml.safe_load(path.read_text())
        return Versions(
            git=dict(data["git"]),
            pairs=tuple(_pair(entry) for entry in data["pairs"]),
            framework=_framework(data["framework"]),
            container=_container(data["container"]),
            debian={suite: tuple(names) for suite, names in data["debian"].items()},
        )
    except OSError as error:
        raise HvdError(f"{shorten(path)}: {error.strerror}", "restore it from git") from error
    except yaml.YAMLError as error:
        raise HvdError(f"{shorten(path)}: {error}", "fix the YAML syntax") from error
    except KeyError as error:
        raise HvdError(
            f"{shorten(path)}: key {error} is missing", "add it; see the comments in the file"
        ) from error
    except TypeError as error:
        raise HvdError(f"{shorten(path)}: not in the expected form ({error})", "") from error


@functools.cache
def versions() -> Versions:
    """The pins of this checkout, read once."""
    return load()


def _pair(entry: Dict[str, Any]) -> Pair:
    return Pair(entry["name"], Pin(**entry["spack"]), Pin(**entry["packages"]))


def _framework(entry: Dict[str, Any]) -> Framework:
    return Framework(
        sets={
            name: RequirementSet(each["python"], tuple(each["requirements"]))
            for name, each in entry["sets"].items()
        },
        mpi=entry["mpi"],
        cmake=entry["cmake"],
    )


def _container(entry: Dict[str, Any]) -> Container:
    images = {name: Images(**each) for name, each in entry["images"].items()}
    return Container(images, dict(entry["mpi"]))
