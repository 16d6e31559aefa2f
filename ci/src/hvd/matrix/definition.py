"""What ``ci/matrix.yaml`` says: the axes, their values, and the cells that are asked for."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from typing import Any, Dict, Iterator, Mapping, Optional, Pattern, Tuple

from packaging.specifiers import SpecifierSet

from hvd.core import schema
from hvd.core.errors import HvdError
from hvd.core.paths import ROOT, shorten
from hvd.model import pins
from hvd.model.pins import Pin

FILE = ROOT / "ci" / "matrix.yaml"
SCHEMA = pathlib.Path(__file__).with_name("matrix.schema.json")
#: The axes, in the order in which a cell's name has their values.
AXES = (
    *("horovod", "framework", "python", "mpi", "controllers", "operations", "cmake", "compiler"),
    "engine",
)
#: The value of ``engine`` of a cell that Spack does not build; the others are pairs.
PIP = "pip"
#: The value of ``mpi`` and ``compiler`` that is taken from PATH.
SYSTEM = "system"
#: The value of ``mpi`` of a cell whose controllers do without.
NONE = "none"
#: What a block says for every value of an axis.
_ALL = "all"


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

    @property
    def id(self) -> str:
        """Its name, also that of its files: ``0.28.1_pytorch-2.13_py3.11_openmpi-4.1_...``."""
        values = dataclasses.asdict(self)
        return "_".join(f"py{v}" if axis == "python" else v for axis, v in values.items())

    def matches(self, part: Mapping[str, str]) -> bool:
        """Whether it has the values of ``part``."""
        return all(getattr(self, axis) == value for axis, value in part.items())


@dataclasses.dataclass(frozen=True)
class Framework:
    """What is installed for Horovod to be built with.

    Args:
        frameworks: the recipe's variant.
        python: the Pythons that there are wheels for.
        pins: sets of ``ci/versions.yaml``; empty where it has ``requirements`` of its own.
        requirements: what pip is asked for, without what every framework needs.
        cuda: the Pythons for which there may be a build for CUDA alone; None where for none.
        system: it is the interpreter's own, of the operating system's packages.
    """

    frameworks: Tuple[str, ...]
    python: SpecifierSet
    pins: Tuple[str, ...]
    requirements: Tuple[str, ...]
    cuda: Optional[SpecifierSet]
    system: bool = False


@dataclasses.dataclass(frozen=True)
class Mpi:
    """An MPI: Spack's name and pip's requirement, both empty for what is on PATH."""

    package: str = ""
    requirement: str = ""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Variants of the recipe, and what pip has to install for them."""

    variants: str
    requirements: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Expected:
    """Cells that are known to fail: the values that they share, why, and where that is said."""

    cells: Mapping[str, str]
    reason: str
    link: str


@dataclasses.dataclass(frozen=True)
class Cause:
    """What a failure comes from, by what the log then says."""

    name: str
    pattern: Pattern[str]
    explanation: str
    link: str


@dataclasses.dataclass(frozen=True)
class Upstream:
    """Horovod's own tests of operations on several ranks.

    Args:
        sources: the commit of each release that is tested so.
        requirements: what the tests import beside the framework.
        files: the test files of each framework.
        failing: why a test fails that is known to, by ``file::class::test``.
    """

    sources: Mapping[str, Pin]
    requirements: Tuple[str, ...]
    files: Mapping[str, Tuple[str, ...]]
    failing: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Matrix:
    """The whole file.

    Args:
        axes: the names of each axis' values.
        frameworks, mpis, controllers, operations: those of them that are more than a name.
        cmakes: pip's requirement of each CMake.
        base_python, base: what every framework needs, for the Pythons that it is for.
        pip: the pip to install with, by Python.
        cuda: the variants of a build with a framework for CUDA.
        upstream: Horovod's own tests.
        blocks: axis to values, by block; every axis is in each.
        must: parts of cells that are tried in any case.
        expected: cells that are known to fail.
        causes: what failures come from.
    """

    axes: Mapping[str, Tuple[str, ...]]
    frameworks: Mapping[str, Framework]
    mpis: Mapping[str, Mpi]
    controllers: Mapping[str, Choice]
    operations: Mapping[str, Choice]
    cmakes: Mapping[str, str]
    base_python: SpecifierSet
    base: Tuple[str, ...]
    pip: Mapping[str, str]
    cuda: str
    upstream: Upstream
    blocks: Mapping[str, Mapping[str, Tuple[str, ...]]]
    must: Tuple[Mapping[str, str], ...]
    expected: Tuple[Expected, ...]
    causes: Tuple[Cause, ...]

    def expects(self, cell: Cell) -> Optional[Expected]:
        """Why ``cell`` is known to fail; None where it is not."""
        return next((each for each in self.expected if cell.matches(each.cells)), None)

    def cause(self, name: str) -> Optional[Cause]:
        """The cause called ``name``; None where the file has it no more."""
        return next((each for each in self.causes if each.name == name), None)


def load(file: pathlib.Path = FILE) -> Matrix:
    """Read the matrix.

    Raises:
        HvdError: the file is not as it should be; names the key.
    """
    data = schema.load(file, SCHEMA)
    axes = data["axes"]
    engines = (PIP, *(pair.name for pair in pins.versions().pairs))
    names = {axis: tuple(axes[axis]) if axis in axes else engines for axis in AXES}
    for place, axis, value in _named(data):
        if value not in names[axis]:
            raise HvdError(
                f"{shorten(file)}: key '{place}:{axis}': '{value}' is no value of the axis",
                f"use one of {', '.join(names[axis])}",
            )
    return Matrix(
        axes=names,
        frameworks={name: _framework(entry) for name, entry in axes["framework"].items()},
        mpis={
            name: Mpi(entry.get("package", ""), _requirement(entry, f"axes:mpi:{name}", file))
            for name, entry in axes["mpi"].items()
        },
        controllers={name: _choice(entry) for name, entry in axes["controllers"].items()},
        operations={name: _choice(entry) for name, entry in axes["operations"].items()},
        cmakes={
            name: _requirement(entry, f"axes:cmake:{name}", file)
            for name, entry in axes["cmake"].items()
        },
        base_python=SpecifierSet(data["base"]["python"]),
        base=tuple(data["base"]["requirements"]),
        pip=dict(data["pip"]),
        cuda=data["cuda"]["variants"],
        upstream=_upstream(data["upstream"]),
        blocks={name: _block(block, names) for name, block in data["blocks"].items()},
        must=tuple(data["must"]),
        expected=tuple(Expected(**entry) for entry in data["expected"]),
        causes=tuple(_cause(entry, file) for entry in data["causes"]),
    )


@functools.cache
def matrix() -> Matrix:
    """The matrix of this checkout, read once."""
    return load()


def _named(data: Mapping[str, Any]) -> Iterator[Tuple[str, str, str]]:
    """Every value of an axis that is named outside the axes: where, the axis, and the value."""
    for name, block in data["blocks"].items():
        for axis, values in block.items():
            for value in () if values == _ALL else values:
                yield f"blocks:{name}", axis, value
    parts = [(f"must:{number}", part) for number, part in enumerate(data["must"])]
    parts += [(f"expected:{n}:cells", each["cells"]) for n, each in enumerate(data["expected"])]
    for place, part in parts:
        for axis, value in part.items():
            yield place, axis, value


def _framework(entry: Mapping[str, Any]) -> Framework:
    chosen = entry.get("pins", ())
    python = SpecifierSet(entry.get("python", ""))
    for each in pins.versions().framework.chosen(chosen) if chosen else ():
        python &= SpecifierSet(each.python)
    return Framework(
        frameworks=tuple(entry["frameworks"]),
        python=python,
        pins=tuple(chosen),
        requirements=tuple(entry.get("requirements", ())),
        cuda=SpecifierSet(entry["cuda"]) if "cuda" in entry else None,
        system=entry.get("system", False),
    )


def _upstream(entry: Mapping[str, Any]) -> Upstream:
    return Upstream(
        sources={v: Pin(f"v{v}", commit) for v, commit in entry["sources"].items()},
        requirements=tuple(entry["requirements"]),
        files={name: tuple(files) for name, files in entry["files"].items()},
        failing=dict(entry["failing"]),
    )


def _choice(entry: Mapping[str, Any]) -> Choice:
    return Choice(entry.get("variants", ""), tuple(entry.get("requirements", ())))


def _requirement(entry: Mapping[str, str], place: str, file: pathlib.Path) -> str:
    """The requirement that an entry has, itself or as a pin."""
    if "pin" not in entry:
        return entry.get("requirement", "")
    found: Any = pins.versions()
    for key in entry["pin"].split(":"):
        found = found.get(key) if isinstance(found, Mapping) else getattr(found, key, None)
    if not isinstance(found, str):
        raise HvdError(
            f"{shorten(file)}: key '{place}:pin': {shorten(pins.VERSIONS)} has no {entry['pin']}",
            "name another, or give a requirement",
        )
    return found


def _block(
    block: Mapping[str, Any], names: Mapping[str, Tuple[str, ...]]
) -> Dict[str, Tuple[str, ...]]:
    """Each axis' values in a block: those it names, all of them, or the first one."""
    chosen = {axis: block.get(axis, names[axis][:1]) for axis in AXES}
    return {axis: names[axis] if v == _ALL else tuple(v) for axis, v in chosen.items()}


def _cause(entry: Mapping[str, str], file: pathlib.Path) -> Cause:
    try:
        pattern = re.compile(entry["pattern"])
    except re.error as error:
        raise HvdError(
            f"{shorten(file)}: the pattern of cause '{entry['name']}': {error}",
            "mend the regular expression",
        ) from error
    return Cause(**{**entry, "pattern": pattern})
