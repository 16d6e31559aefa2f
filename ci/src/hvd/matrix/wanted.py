"""What a cell is built from: pip's requirements, the spec, and what the recipe says of it."""

from __future__ import annotations

import dataclasses
import functools
from typing import List, Mapping, Optional, Set, Tuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hvd.core import stamp
from hvd.core.errors import HvdError
from hvd.host import externals, framework
from hvd.matrix.definition import NONE, PIP, SYSTEM, Cell, Framework, Matrix
from hvd.matrix.here import Here
from hvd.model import pins, recipe, specs
from hvd.model.environment import HOROVOD
from hvd.model.recipe import Recipe
from hvd.model.specs import Spec

#: What a build for CPUs has not.
_CPU = "~cuda"
#: Variants that a distribution is known to have, whatever a site builds it with.
_VARIANTS = {
    # its wheels have the interface for Python, and Horovod asks for it
    "mxnet": {"python": True},
    # so that a PyTorch for CUDA beside it, for which Horovod is built with CUDA, is refused
    "tensorflow-cpu": {"cuda": False},
}
#: What the checks themselves import.
_CHECKS = {"numpy"}
#: What no cell has.
_NEVER = "~rocm"


@functools.cache
def horovod() -> Recipe:
    """The recipe, read once."""
    return recipe.load(HOROVOD)


def exists(matrix: Matrix, values: Mapping[str, str]) -> bool:
    """Whether there is a cell with ``values``, of all axes or some, whatever a machine has."""
    name, python = values.get("framework"), values.get("python")
    if name and python and python not in matrix.frameworks[name].python:
        return False
    controllers, mpi = values.get("controllers"), values.get("mpi")
    if controllers and mpi:
        # a library that nothing calls would pass for one that was tried
        return ("+mpi" in matrix.controllers[controllers].variants) == (mpi != NONE)
    return True


def requirements(matrix: Matrix, values: Mapping[str, str]) -> List[str]:
    """What pip installs for a cell's framework and operations: PEP 508 requirements.

    Of what every cell has, a distribution is left out that the recipe declares for others alone:
    else a cell would pass that has by accident what the recipe forgets.

    Args:
        matrix: whose axes ``values`` are of.
        values: at least of ``framework`` and ``python``.
    """
    operations = values.get("operations")
    more = matrix.operations[operations].requirements if operations else ()
    old = values["python"] in matrix.base_python
    chosen = matrix.frameworks[values["framework"]]
    wanted = _merged(chosen, matrix.base if old else None, more)
    if "horovod" not in values:
        return wanted
    its_own = {Requirement(text).name for text in (*chosen.requirements, *more)}
    left_out = _undeclared(f"{spec(matrix, values)} ^python@{values['python']}") - its_own
    return [text for text in wanted if Requirement(text).name not in left_out]


@functools.cache
def _undeclared(text: str) -> Set[str]:
    """Distributions that the recipe declares for other specs than ``text``."""
    asked = specs.parse(text)
    declared = horovod().dependencies(asked)
    names = {specs.parse(each.arguments[0]).name for each in horovod().named("depends_on")}
    return {name.replace("py-", "", 1) for name in names - declared} - _CHECKS


def spec(matrix: Matrix, values: Mapping[str, str], cuda: Optional[bool] = None) -> str:
    """The spec of the axes' ``values``, of all of them or of some.

    Args:
        matrix: whose axes they are of.
        values: the axes' values.
        cuda: whether its framework is one for CUDA; None for what the matrix says.
    """
    words = [HOROVOD + (f"@{values['horovod']}" if "horovod" in values else "")]
    for axis in ("controllers", "operations"):
        if axis in values:
            words.append(getattr(matrix, axis)[values[axis]].variants)
    chosen = matrix.frameworks[values["framework"]] if "framework" in values else None
    python = values.get("python", "")
    if cuda is None and chosen and chosen.cuda is not None and python:
        cuda = python in chosen.cuda
    words += [_NEVER, matrix.cuda if cuda else _CPU]
    if chosen:
        words.append(f"frameworks:={','.join(chosen.frameworks)}")
    return " ".join(filter(None, words))


def concrete(
    matrix: Matrix, values: Mapping[str, str], here: Here, cuda: Optional[bool] = None
) -> str:
    """As :func:`spec`, with what it depends on as far as the matrix and this machine say it."""
    words = [spec(matrix, values, cuda), *_tools(matrix, values, here)]
    if "python" in values:
        words.append(f"^python@{values['python']}")
        if "framework" in values:
            words += _packages(tuple(requirements(matrix, values)), values["python"])
    mpi = values.get("mpi", NONE)
    if mpi == SYSTEM and here.mpi:
        words.append(f"^{here.mpi.package}@{here.mpi.version}")
    elif mpi not in (NONE, SYSTEM):
        library = matrix.mpis[mpi]
        words.append(f"^{library.package}@{_exact(Requirement(library.requirement))}")
    return " ".join(words)


def asked(matrix: Matrix, cell: Cell, here: Here, cuda: bool) -> str:
    """What ``./hvd run --spec`` is given for ``cell``.

    Spack chooses CMake and the compiler itself, so that it is told; pip takes those of PATH.
    """
    values = dataclasses.asdict(cell)
    tools = () if cell.engine == PIP else _tools(matrix, values, here)
    return " ".join([spec(matrix, values, cuda), *tools])


def _tools(matrix: Matrix, values: Mapping[str, str], here: Here) -> List[str]:
    """Compiler and CMake; the compiler first, as it would be CMake's own after that."""
    words = []
    compiler = values.get("compiler", "")
    if compiler == SYSTEM and here.compiler[1]:
        words.append(f"%{here.compiler[0]}@{here.compiler[1]}")
    elif compiler not in ("", SYSTEM):
        words.append(f"%{compiler.replace('clang', 'llvm').replace('-', '@')}")
    if "cmake" in values:
        words.append(f"^cmake@{_exact(Requirement(matrix.cmakes[values['cmake']]))}")
    return words


@functools.cache
def refusal(text: str, partly: bool = False) -> str:
    """What the recipe has against the spec ``text``, in its words; empty if nothing.

    Args:
        text: a spec.
        partly: more may be added to it; only what then stays refused counts.
    """
    asked = specs.parse(text)
    if partly:
        for directive in horovod().refusals(asked):
            # what is required may still come; what conflicts does not go away
            if directive.name != "requires":
                return str(directive.keywords.get("msg", directive.arguments[0]))
        return ""
    asked = horovod().complete(asked)
    if asked.versions not in horovod().versions():
        return f"the recipe has no {asked.name}@{asked.versions}"
    try:
        horovod().check(asked)
    except HvdError as error:
        return error.message
    return ""


def inputs(matrix: Matrix, cell: Cell, here: Here) -> str:
    """A digest of what decides what is built and run: a result with another one is stale."""
    values = dataclasses.asdict(cell)
    py_horovod = horovod()
    asked = py_horovod.complete(specs.parse(concrete(matrix, values, here)))
    pair = () if cell.engine == PIP else (dataclasses.asdict(pins.versions().pair(cell.engine)),)
    return stamp.of(
        py_horovod.versions().get(cell.horovod, ""),
        *py_horovod.patches(asked),
        str(asked),
        requirements(matrix, values),
        *pair,
    )


def dependency(name: str, version: str) -> Spec:
    """The spec of a Python distribution as Spack has it, such as ``py-torch@2.13.0``."""
    name = canonicalize_name(name)
    (package,) = externals.by_package({name: {}})
    return Spec(package, externals.spack_version(version), dict(_VARIANTS.get(name, {})))


@functools.cache
def _merged(
    chosen: Framework, base: Optional[Tuple[str, ...]], more: Tuple[str, ...]
) -> List[str]:
    """Those of a framework, of what each needs (None: that of ci/versions.yaml), and more."""
    sets = pins.versions().framework.chosen(chosen.pins)
    groups = [each.requirements for each in sets] if base is None else [base]
    return framework.merged([*groups, chosen.requirements, more])


@functools.cache
def _packages(wanted: Tuple[str, ...], python: str) -> List[str]:
    """The Spack packages whose versions the requirements fix."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    found = []
    for requirement in map(Requirement, wanted):
        version = _exact(requirement)
        if version and (not requirement.marker or requirement.marker.evaluate(environment)):
            found.append(f"^{dependency(requirement.name, version)}")
    return found


def _exact(requirement: Requirement) -> str:
    """The version of ``name==version``; empty for any other requirement."""
    fixed = [each.version for each in requirement.specifier if each.operator == "=="]
    return fixed[0] if len(fixed) == 1 else ""
