"""``ci/matrix.yaml``: the cells of the support matrix, and what each is made from."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import cattrs
from packaging.requirements import Requirement

from hvd.core import schema, stamp
from hvd.core.errors import HvdError, nearest
from hvd.core.paths import ROOT, shorten
from hvd.host import framework
from hvd.model import recipe, specs
from hvd.model.environment import HOROVOD
from hvd.model.recipe import Recipe
from hvd.model.versions import pinned

FILE = ROOT / "ci" / "matrix.yaml"
#: What Horovod's tests say of the behaviour that the recipe's patches change.
TESTS_PATCH = ROOT / "tests" / "upstream-tests.patch"
#: The engine that is not Spack; the others are pairs of ``ci/versions.yaml``.
PIP = "pip"
#: The MPI or compiler on PATH.
SYSTEM = "system"
#: The processor of the machine that tries the cell.
HERE = "here"
CONTROLLERS = {"both": "+mpi+gloo", "mpi": "+mpi~gloo", "gloo": "~mpi+gloo"}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One combination to build and run; ``fails`` says why it is known to fail."""

    framework: str
    horovod: str = "0.28.1"
    python: str = "3.11"
    mpi: str = "openmpi-4.1"
    controllers: str = "both"
    operations: str = "default"
    cmake: str = "cmake-3"
    compiler: str = SYSTEM
    engine: str = PIP
    target: str = HERE
    fails: str = dataclasses.field(default="", compare=False)

    @property
    def id(self) -> str:
        """The cell's name: ``0.28.1_pytorch-2.13_py3.11_openmpi-4.1_both_default_...``."""
        words = [self.horovod, self.framework, f"py{self.python}", self.mpi, self.controllers]
        words += [self.operations, self.cmake, self.compiler, self.engine]
        return "_".join([*words, self.target] if self.target != HERE else words)


AXES = tuple(field.name for field in dataclasses.fields(Cell) if field.compare)


@dataclasses.dataclass(frozen=True)
class Framework:
    """A value of the axis ``framework``: Horovod's names, and what pip installs for it, None for
    what ``ci/versions.yaml`` has.

    ``common``: and what Horovod requires; ``built``: but what Spack builds; ``system``: the
    operating system's packages are visible.  ``examples`` are run with it.
    """

    frameworks: Tuple[str, ...]
    examples: Tuple[str, ...] = ()
    requirements: Optional[Tuple[str, ...]] = None
    common: bool = True
    system: bool = False
    built: FrozenSet[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Choice:
    """What another axis' value adds to the spec, and what pip installs for it."""

    spec: str = ""
    requirements: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Matrix:
    """The whole file; the comments in it describe the keys."""

    frameworks: Mapping[str, Framework]
    mpi: Mapping[str, Choice]
    operations: Mapping[str, Choice]
    cmake: Mapping[str, Choice]
    before_python_3_10: Tuple[str, ...]
    pip: Mapping[str, str]
    roots: Mapping[str, str]
    upstream: Mapping[str, Any]
    cells: Tuple[Cell, ...]

    def requirements(self, cell: Cell) -> List[str]:
        """Return what pip installs into the cell's Python.

        Leaves out what the recipe declares for other specs only: a cell must not pass because it
        happens to have what the recipe forgets.
        """
        chosen = self.frameworks[cell.framework]
        common: List[Sequence[str]] = []
        if chosen.common and specs.version_in(cell.python, ":3.9"):
            common = [self.before_python_3_10]
        elif chosen.common:
            names = () if chosen.requirements is not None else chosen.frameworks
            common = [each.requirements for each in pinned().framework.chosen(names)]
        own = [chosen.requirements or (), self.operations[cell.operations].requirements]
        spec = specs.parse(f"{self.spec(cell)} ^python@{cell.python}")
        every = {specs.parse(d.arguments[0]).name for d in horovod().named("depends_on")}
        undeclared = every - horovod().dependencies(spec)
        left_out = {name.replace("py-", "", 1) for name in undeclared} | chosen.built
        # the checks import numpy
        left_out -= {"numpy"}.union(Requirement(text).name for group in own for text in group)
        wanted = framework.merged([*common, *own])
        return [text for text in wanted if Requirement(text).name not in left_out]

    def spec(self, cell: Cell, cuda: bool = False) -> str:
        """Return the spec of Horovod without dependencies; ``cuda``: the framework has CUDA."""
        words = [f"{HOROVOD}@{cell.horovod}", CONTROLLERS[cell.controllers]]
        words.append(self.operations[cell.operations].spec)
        words.append("+nccl+cuda cuda_arch=90" if cuda else "~cuda")
        words.append(f"target={cell.target}" if cell.target != HERE else "")
        words.append(f"frameworks:={','.join(self.frameworks[cell.framework].frameworks)}")
        return " ".join(filter(None, words))

    def tools(self, cell: Cell) -> str:
        """Return compiler and CMake as words of a spec."""
        # the compiler first: after CMake it would be CMake's
        compiler = f"%{cell.compiler.replace('clang', 'llvm').replace('-', '@')} "
        return f"{compiler if cell.compiler != SYSTEM else ''}^{self.cmake[cell.cmake].spec}"

    def tests(self, cell: Cell) -> List[str]:
        """Return the files of Horovod's own tests for ``cell``; none without a known commit."""
        names = self.frameworks[cell.framework].frameworks
        files = [file for name in names for file in self.upstream["files"].get(name, ())]
        return files if cell.horovod in self.upstream["sources"] else []

    def inputs(self, cell: Cell, cuda: bool = False, tested: bool = False) -> Dict[str, str]:
        """Return a digest of each thing that the cell is made from.

        Args:
            cuda: the framework has CUDA.
            tested: Horovod's own tests belong to it.
        """
        spec = f"{self.spec(cell, cuda)} {self.tools(cell)}"
        patches = horovod().patches(horovod().complete(specs.parse(spec)))
        parts: Dict[str, object] = {
            "source": horovod().versions().get(cell.horovod),
            "patches": [_changes(path.read_text()) for path in patches],
            "spec": [spec, cell.python, self.mpi.get(cell.mpi, Choice()).spec],
            "requirements": self.requirements(cell),
        }
        if cell.engine != PIP:
            programs = sorted((horovod().directory / "test").glob("*.py"))
            pair = dataclasses.asdict(pinned().pair(cell.engine))
            parts["spack"] = [pair, [path.read_text() for path in programs]]
        if tested:
            commit = self.upstream["sources"][cell.horovod]
            parts["tests"] = [commit, self.tests(cell), TESTS_PATCH.read_text()]
        return {name: stamp.of(part)[:8] for name, part in parts.items()}


def _changes(patch: str) -> List[str]:
    """Return the files and lines that a patch changes, without its words and its context."""
    _, _, changes = patch.partition("\n--- ")
    return [line for line in changes.splitlines() if line.startswith(("-", "+"))]


@functools.cache
def horovod() -> Recipe:
    """Return the recipe of Horovod."""
    return recipe.load(HOROVOD)


def load(file: pathlib.Path = FILE) -> Matrix:
    """Read the matrix; an error names the cell and the value."""
    try:
        data = schema.read(file)
        matrix = cattrs.Converter(forbid_extra_keys=True).structure(data, Matrix)
    except cattrs.BaseValidationError as error:
        raise HvdError(f"{shorten(file)}: {cattrs.transform_error(error)[0]}") from error
    known = {
        "framework": matrix.frameworks,
        "horovod": horovod().versions(),
        "mpi": (*matrix.mpi, SYSTEM, "none"),
        "controllers": CONTROLLERS,
        "operations": matrix.operations,
        "cmake": matrix.cmake,
        "engine": (PIP, *(pair.name for pair in pinned().pairs)),
    }
    for cell in matrix.cells:
        for axis, values in known.items():
            if (value := getattr(cell, axis)) not in values:
                message = f"{shorten(file)}: cell {cell.id}: unknown {axis} '{value}'"
                raise HvdError(message, nearest(value, values))
    return matrix


@functools.cache
def matrix() -> Matrix:
    """Return the matrix of this checkout."""
    return load()


def chosen(cells: Sequence[Cell], filters: Sequence[str], shard: str) -> List[Cell]:
    """Return part K of N (``shard``: ``K/N``) of the cells that pass every filter.

    A filter is ``AXIS=VALUE[,VALUE]``, or a part of the name.
    """
    found = list(cells)
    for text in filters:
        axis, equals, values = text.partition("=")
        if equals and axis not in AXES:
            raise HvdError(f"--filter: unknown axis '{axis}'", f"use {', '.join(AXES)}")
        if equals:
            found = [each for each in found if getattr(each, axis) in values.split(",")]
        else:
            found = [each for each in found if text in each.id]
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", shard)
    number, count = map(int, match.groups()) if match else (1, 0)
    if number > count:
        raise HvdError(f"--shard: invalid shard '{shard}'", "give K/N, such as 1/2 and 2/2")
    # neighbours share what pip installs
    return found[len(found) * (number - 1) // count : len(found) * number // count]
