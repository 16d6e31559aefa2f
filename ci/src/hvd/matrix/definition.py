"""``ci/matrix.yaml``: the axes of the support matrix, their values, and which cells to choose."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from typing import Any, Dict, FrozenSet, Mapping, Optional, Tuple

import cattrs
from packaging.specifiers import SpecifierSet

from hvd.core import schema
from hvd.core.errors import HvdError
from hvd.core.paths import ROOT, shorten
from hvd.model.versions import VERSIONS, pinned

FILE = ROOT / "ci" / "matrix.yaml"
SCHEMA = pathlib.Path(__file__).with_name("matrix.schema.json")
#: The engine of a cell that Spack does not build; the other engines are pairs.
PIP = "pip"
#: The MPI or compiler on PATH.
SYSTEM = "system"
#: The MPI of a cell without the MPI controller.
NONE = "none"
#: The target of a cell that is for the machine that tries it.
HERE = "here"
#: In a block: every value of an axis.
_ALL = "all"

_CONVERTER = cattrs.Converter(detailed_validation=False)
_CONVERTER.register_structure_hook(SpecifierSet, lambda text, _: SpecifierSet(text))


@dataclasses.dataclass(frozen=True)
class Cell:
    """One combination: a value for each axis."""

    horovod: str
    framework: str
    python: str
    mpi: str
    controllers: str
    operations: str
    cmake: str
    compiler: str
    engine: str
    target: str = HERE

    @property
    def values(self) -> Dict[str, str]:
        """The values by axis."""
        return dataclasses.asdict(self)

    @property
    def id(self) -> str:
        """The name of the cell and its files: ``0.28.1_pytorch-2.13_py3.11_openmpi-4.1_...``."""
        values = {**self.values, "python": f"py{self.python}"}
        if self.target == HERE:
            del values["target"]
        return "_".join(values.values())

    def matches(self, part: Mapping[str, str]) -> bool:
        """Return whether the cell has all values of ``part``."""
        return self.values.items() >= part.items()


AXES = tuple(field.name for field in dataclasses.fields(Cell))


@dataclasses.dataclass(frozen=True)
class Framework:
    """A value of the axis ``framework``; ``python`` comes from ``pins`` where it has them.

    ``built``: distributions of the pins that Spack builds instead.
    """

    frameworks: Tuple[str, ...]
    python: SpecifierSet
    pins: Tuple[str, ...] = ()
    requirements: Tuple[str, ...] = ()
    cuda: Optional[SpecifierSet] = None
    system: bool = False
    built: FrozenSet[str] = frozenset()

    def needs_cuda(self, python: str) -> bool:
        """Return whether the package index may have CUDA builds only for ``python``."""
        return self.cuda is not None and python in self.cuda


@dataclasses.dataclass(frozen=True)
class Choice:
    """A value of ``mpi``, ``controllers``, ``operations`` or ``cmake``; a pin is resolved."""

    package: str = ""
    requirement: str = ""
    variants: str = ""
    requirements: Tuple[str, ...] = ()
    rocm: str = ""


@dataclasses.dataclass(frozen=True)
class Base:
    """Requirements of every framework, for Pythons that ``ci/versions.yaml`` leaves out."""

    python: SpecifierSet
    requirements: Tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Expected:
    """Cells that are known to fail, by the values they share."""

    cells: Mapping[str, str]
    reason: str
    link: str


@dataclasses.dataclass(frozen=True)
class Cause:
    """A known cause of failures, recognized by a regular expression in the log."""

    name: str
    pattern: str
    explanation: str
    link: str


@dataclasses.dataclass(frozen=True)
class Upstream:
    """Horovod's own tests of operations on several ranks."""

    sources: Mapping[str, str]
    requirements: Tuple[str, ...]
    files: Mapping[str, Tuple[str, ...]]
    failing: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Matrix:
    """The whole file; ``matrix.schema.json`` describes each key and its values.

    Args:
        axes: the names of each axis' values, the default first.
        frameworks: the values of the axis ``framework``.
        choices: the values of ``mpi``, ``controllers``, ``operations`` and ``cmake``, by axis.
        blocks: the values of every axis, by block.
    """

    axes: Mapping[str, Tuple[str, ...]]
    frameworks: Mapping[str, Framework]
    choices: Mapping[str, Mapping[str, Choice]]
    base: Base
    pip: Mapping[str, str]
    cuda: Choice
    upstream: Upstream
    blocks: Mapping[str, Mapping[str, Tuple[str, ...]]]
    must: Tuple[Mapping[str, str], ...]
    expected: Tuple[Expected, ...]
    causes: Tuple[Cause, ...]

    def expects(self, cell: Cell) -> Optional[Expected]:
        """Return the entry that expects ``cell`` to fail; None if there is none."""
        return next((each for each in self.expected if cell.matches(each.cells)), None)


def load(file: pathlib.Path = FILE) -> Matrix:
    """Read the matrix.

    Raises:
        HvdError: the file has a mistake; names the key.
    """
    data = schema.load(file, SCHEMA)
    values = {**data["axes"], "engine": [PIP, *(pair.name for pair in pinned().pairs)]}
    axes = {axis: list(values[axis]) for axis in AXES}
    blocks = {name: _block(block, axes) for name, block in data["blocks"].items()}
    _check_values(data, blocks, axes, file)
    _check_patterns(data["causes"], file)
    for entry in values["framework"].values():
        if "pins" in entry:
            chosen = pinned().framework.chosen(entry["pins"])
            entry["python"] = ",".join(each.python for each in chosen)
    for axis in ("mpi", "cmake"):
        for name, entry in values[axis].items():
            if "pin" in entry:
                entry["requirement"] = _pinned(entry["pin"], f"axes:{axis}:{name}:pin", file)
    choices = {axis: values[axis] for axis in ("mpi", "controllers", "operations", "cmake")}
    content = {"axes": axes, "frameworks": values["framework"], "choices": choices}
    return _CONVERTER.structure({**data, **content, "blocks": blocks}, Matrix)


@functools.cache
def matrix() -> Matrix:
    """Return the matrix of this checkout."""
    return load()


def _block(block: Mapping[str, Any], axes: Mapping[str, Any]) -> Dict[str, Any]:
    """Add the default of each axis that ``block`` leaves out, and expand ``all``."""
    named = {axis: block.get(axis, values[:1]) for axis, values in axes.items()}
    return {axis: axes[axis] if values == _ALL else values for axis, values in named.items()}


def _check_values(
    data: Mapping[str, Any], blocks: Mapping[str, Any], axes: Mapping[str, Any], file: pathlib.Path
) -> None:
    """Check that blocks, ``must`` and ``expected`` only name values of the axes."""
    parts = {f"blocks:{name}": block for name, block in blocks.items()}
    parts.update({f"must:{number}": part for number, part in enumerate(data["must"])})
    parts.update({f"expected:{n}:cells": each["cells"] for n, each in enumerate(data["expected"])})
    for place, part in parts.items():
        for axis, named in part.items():
            unknown = {named} if isinstance(named, str) else set(named)
            unknown -= set(axes[axis])
            if unknown:
                key = f"{shorten(file)}: key '{place}:{axis}'"
                raise HvdError(
                    f"{key}: '{min(unknown)}' is no value of the axis",
                    f"use one of {', '.join(axes[axis])}",
                )


def _check_patterns(causes: Any, file: pathlib.Path) -> None:
    for cause in causes:
        try:
            re.compile(cause["pattern"])
        except re.error as error:
            raise HvdError(
                f"{shorten(file)}: key 'causes:{cause['name']}:pattern': {error}",
                "correct the regular expression",
            ) from error


def _pinned(pin: str, key: str, file: pathlib.Path) -> str:
    """Return what ``ci/versions.yaml`` has at ``pin``, such as ``framework:mpi``."""
    found: Any = dataclasses.asdict(pinned())
    for name in pin.split(":"):
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, str):
        raise HvdError(
            f"{shorten(file)}: key '{key}': {shorten(VERSIONS)} has no {pin}",
            "use a key that it has, or give a requirement",
        )
    return found
