"""The needs of cells: pip's requirements, the spec, and what recipe and machine refuse."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
from typing import List, Mapping, Optional, Sequence, Set, Tuple

import archspec.cpu
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hvd.core import stamp
from hvd.core.errors import HvdError
from hvd.host import externals, framework
from hvd.matrix.definition import AXES, HERE, NONE, PIP, SYSTEM, Cell, Matrix
from hvd.matrix.here import Here, cxx
from hvd.model import recipe, specs
from hvd.model.environment import HOROVOD
from hvd.model.recipe import Recipe
from hvd.model.specs import Spec
from hvd.model.versions import pinned

#: Variants that a distribution has in every cell.
_VARIANTS = {
    # its wheels have the interface for Python, and Horovod asks for it
    "mxnet": {"python": True},
    # so that the recipe refuses it beside a PyTorch for CUDA
    "tensorflow-cpu": {"cuda": False},
    "tensorflow-rocm": {"rocm": True},
}
#: Distributions that the checks of a cell import.
_CHECKS = {"numpy"}

#: The values of all axes, or of some.
Values = Mapping[str, str]


@functools.cache
def horovod() -> Recipe:
    """Return the recipe of Horovod."""
    return recipe.load(HOROVOD)


def refusal(py_horovod: Recipe, spec: str, partly: bool = False) -> str:
    """Return the recipe's first message against ``spec``; empty if it allows it.

    With ``partly``, more may be added to the spec: only what it can never become is refused.
    """
    asked = specs.parse(spec)
    for directive in py_horovod.refusals(asked if partly else py_horovod.complete(asked)):
        # what is required may still come; what conflicts does not go away
        if not (partly and directive.name == "requires"):
            return str(directive.keywords.get("msg") or " or ".join(directive.arguments))
    return ""


@dataclasses.dataclass(frozen=True)
class Needs:
    """The needs of a matrix' cells on a machine."""

    matrix: Matrix
    here: Here

    def exists(self, values: Values) -> bool:
        """Return whether there is a cell with ``values`` on any machine."""
        name, python = values.get("framework"), values.get("python")
        if name and python and python not in self.matrix.frameworks[name].python:
            return False
        controllers, mpi = values.get("controllers"), values.get("mpi")
        if controllers and mpi:
            # a library that nothing calls would count as tried
            variants = self.matrix.choices["controllers"][controllers].variants
            return ("+mpi" in variants) == (mpi != NONE)
        return True

    def allowed(self, values: Values) -> bool:
        """Return whether there is a cell with ``values`` that the recipe does not refuse."""
        return self.exists(values) and not self.refusal(values)

    def possible(self, values: Values) -> bool:
        """Return whether a cell with ``values`` can be tried on this machine."""
        return self.allowed(values) and not self.lacks(values)

    def lacks(self, values: Values) -> str:
        """Return what this machine lacks for any cell with ``values``; empty if nothing."""
        here, python, name = self.here, values.get("python"), values.get("framework")
        compiler, target = values.get("compiler"), values.get("target", HERE)
        if target != HERE and str(archspec.cpu.TARGETS[target].family) != here.family:
            return f"{target} is not of this machine's family; ./hvd debian has roots of others"
        if python and python not in here.pythons:
            return f"Python {python} is not on this machine"
        if values.get("mpi") == SYSTEM and not here.mpi:
            return "there is no MPI on PATH"
        if compiler and compiler not in here.compilers:
            return f"{cxx(compiler)} is not on PATH"
        rocm = self._rocm(values)
        if rocm and rocm != here.rocm:
            return f"HIP {rocm} is not on PATH; ./hvd debian has roots with it"
        if not name:
            return ""
        chosen = self.matrix.frameworks[name]
        if chosen.system and python and not _has_torch(here.pythons[python]):
            return f"{name}: the operating system's Python {python} has no PyTorch"
        if "spark" in chosen.frameworks and not here.java:
            return f"{name}: java is not on PATH"
        if python and chosen.needs_cuda(python) and here.no_cuda:
            return f"{name} for Python {python}: {here.no_cuda}"
        return ""

    def refusal(self, values: Values) -> str:
        """Return the recipe's message against every cell with ``values``; empty if it has none."""
        if "horovod" not in values:
            # most of the recipe's conditions are on a release
            return ""
        return _refusal(self.concrete(values), partly=len(values) < len(AXES))

    def requirements(self, values: Values) -> List[str]:
        """Return the PEP 508 requirements of framework and operations.

        A distribution of the common set is left out if the recipe declares it for other specs
        only: otherwise a cell would pass that happens to have what the recipe forgets.
        """
        chosen = self.matrix.frameworks[values["framework"]]
        operations = self.matrix.choices["operations"].get(values.get("operations", ""))
        own = [chosen.requirements, operations.requirements if operations else ()]
        common: List[Sequence[str]] = [self.matrix.base.requirements]
        if chosen.system and not chosen.pins:
            # the operating system has it all
            common = []
        elif values["python"] not in self.matrix.base.python:
            common = [each.requirements for each in pinned().framework.chosen(chosen.pins)]
        left_out = _undeclared(f"{self.spec(values)} ^python@{values['python']}")
        left_out = (left_out | chosen.built) - {_name(text) for group in own for text in group}
        return [text for text in _merged(*common, *own) if _name(text) not in left_out]

    def spec(self, values: Values, cuda: Optional[bool] = None) -> str:
        """Return the spec of Horovod without dependencies.

        Args:
            values: at least of ``horovod``.
            cuda: the framework is a CUDA build; None for what the matrix says of it.
        """
        words = [f"{HOROVOD}@{values['horovod']}"]
        for axis in ("controllers", "operations"):
            if axis in values:
                words.append(self.matrix.choices[axis][values[axis]].variants)
        chosen = self.matrix.frameworks.get(values.get("framework", ""))
        if cuda is None and chosen and "python" in values:
            cuda = chosen.needs_cuda(values["python"])
        if values.get("target", HERE) != HERE:
            words.append(f"target={values['target']}")
        words += [] if self._rocm(values) else ["~rocm"]
        words.append(self.matrix.cuda.variants if cuda else "~cuda")
        if chosen:
            words.append(f"frameworks:={','.join(chosen.frameworks)}")
        return " ".join(filter(None, words))

    def concrete(self, values: Values, cuda: Optional[bool] = None) -> str:
        """Return the spec with all dependencies that the matrix and this machine determine."""
        words = [self.spec(values, cuda), *self._tools(values)]
        if "python" in values:
            words.append(f"^python@{values['python']}")
            if "framework" in values:
                words += _packages(tuple(self.requirements(values)), values["python"])
        mpi = values.get("mpi", NONE)
        if mpi == SYSTEM and self.here.mpi:
            words.append(f"^{self.here.mpi.package}@{self.here.mpi.version}")
        elif mpi not in (NONE, SYSTEM):
            library = self.matrix.choices["mpi"][mpi]
            words.append(f"^{library.package}@{_exact(library.requirement)}")
        return " ".join(words)

    def asked(self, cell: Cell, cuda: bool) -> str:
        """Return the spec for ``./hvd run --spec``.

        Spack is told CMake and compiler, as it does not choose those of PATH; pip does.
        """
        tools = () if cell.engine == PIP else self._tools(cell.values)
        return " ".join([self.spec(cell.values, cuda), *tools])

    def _rocm(self, values: Values) -> str:
        """Return the HIP that operations need; empty if they need none."""
        chosen = self.matrix.choices["operations"].get(values.get("operations", ""))
        return chosen.rocm if chosen else ""

    def _tools(self, values: Values) -> List[str]:
        """Return compiler and CMake; the compiler first, as after CMake it would be CMake's."""
        words = []
        compiler = values.get("compiler", "")
        if compiler == SYSTEM and self.here.compiler[1]:
            words.append(f"%{'@'.join(self.here.compiler)}")
        elif compiler not in ("", SYSTEM):
            words.append(f"%{compiler.replace('clang', 'llvm').replace('-', '@')}")
        if "cmake" in values:
            cmake = self.matrix.choices["cmake"][values["cmake"]]
            words.append(f"^cmake@{_exact(cmake.requirement)}")
        return words

    def inputs(self, cell: Cell, spec: str = "") -> str:
        """Return a digest of what is built and run: a result with another one is stale.

        Args:
            spec: what another machine built; its compiler and MPI are not those of this one.
        """
        py_horovod = horovod()
        asked = py_horovod.complete(specs.parse(spec or self.concrete(cell.values)))
        pair = [] if cell.engine == PIP else [dataclasses.asdict(pinned().pair(cell.engine))]
        return stamp.of(
            py_horovod.versions().get(cell.horovod, ""),
            *py_horovod.patches(asked),
            str(asked),
            self.requirements(cell.values),
            *pair,
        )


@functools.cache
def _refusal(spec: str, partly: bool) -> str:
    if partly:
        return refusal(horovod(), spec, partly)
    asked = horovod().complete(specs.parse(spec))
    if asked.versions not in horovod().versions():
        return f"the recipe has no {asked.name}@{asked.versions}"
    try:
        horovod().check(asked)
    except HvdError as error:
        return error.message
    return ""


@functools.cache
def _has_torch(python: str) -> bool:
    ask = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    command = [python, "-I", "-c", ask]
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0


@functools.cache
def _undeclared(spec: str) -> Set[str]:
    """Return the distributions that the recipe declares for other specs only."""
    declared = horovod().dependencies(specs.parse(spec))
    names = {specs.parse(each.arguments[0]).name for each in horovod().named("depends_on")}
    return {name.replace("py-", "", 1) for name in names - declared} - _CHECKS


@functools.cache
def _merged(*groups: Tuple[str, ...]) -> List[str]:
    return framework.merged(groups)


@functools.cache
def _packages(requirements: Tuple[str, ...], python: str) -> List[str]:
    """Return the Spack packages whose versions the requirements determine."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    found = []
    for text in requirements:
        requirement, version = Requirement(text), _exact(text)
        if version and (not requirement.marker or requirement.marker.evaluate(environment)):
            name = canonicalize_name(requirement.name)
            (package,) = externals.by_package({name: {}})
            variants = dict(_VARIANTS.get(name, {}))
            found.append(f"^{Spec(package, externals.spack_version(version), variants)}")
    return found


@functools.cache
def _name(requirement: str) -> str:
    return Requirement(requirement).name


@functools.cache
def _exact(requirement: str) -> str:
    """Return the version of ``name==version``; empty for any other requirement."""
    specifier = Requirement(requirement).specifier
    fixed = [each.version for each in specifier if each.operator == "=="]
    return fixed[0] if len(fixed) == 1 else ""
