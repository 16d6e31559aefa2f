"""The pins of distributions in ``ci/versions.yaml`` and ``ci/matrix.yaml``, and their lines.

A value of an axis that ends in a number, such as ``openmpi-4.1``, stays with that series.  What
such a value needs beside its framework, for example an older NumPy, stays as it is.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any, Iterator, List, Optional, Tuple

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from hvd.core import schema
from hvd.host import externals
from hvd.matrix import definition
from hvd.matrix.definition import Matrix
from hvd.model import specs
from hvd.model.versions import ALL, VERSIONS, pinned
from hvd.upkeep import newest

_SERIES = re.compile(r"-(\d+(?:\.\d+)*)$")
#: The processors that pins may be for; the first one counts where it may be any.
_MACHINES = ("x86_64", "aarch64")
#: The keys below which a pin is not old on purpose.
_WATCHED = {
    VERSIONS: (("framework",), ("container", "mpi")),
    definition.FILE: (("axes", "framework"), ("axes", "mpi"), ("axes", "cmake")),
}


@dataclasses.dataclass(frozen=True)
class Pin:
    """A distribution at one version."""

    file: pathlib.Path
    line: int  #: of the file, from 1
    name: str
    version: str  #: as it is pinned
    series: str  #: the beginning of versions that may take its place; empty for all
    axis: str  #: the axis of the support matrix whose ``values`` have it
    values: Tuple[str, ...]
    pythons: Tuple[str, ...]  #: of those of the support matrix, the ones that it is for
    machine: str  #: the processor that it is for
    main: bool  #: the values are named after it


def load(matrix: Matrix) -> List[Pin]:
    """Return every pin that a newer version may replace."""
    found = (
        _pin(matrix, file, path, node)
        for file, places in _WATCHED.items()
        for path, node in _scalars(yaml.compose(file.read_text()))
        if any(path[: len(place)] == place for place in places)
    )
    return [pin for pin in found if pin]


def series(value: str) -> str:
    """Return the series that a value of an axis is named after: ``4.1`` of ``openmpi-4.1``."""
    match = _SERIES.search(value)
    return match[1] if match else ""


def kind(value: str) -> str:
    """Return the rest of the name: ``openmpi`` of ``openmpi-4.1``."""
    return _SERIES.sub("", value)


def package(distribution: str) -> str:
    """Return the Spack package of a distribution."""
    (name,) = externals.by_package({distribution: {}})
    return name


def _scalars(node: Any, path: Tuple[str, ...] = ()) -> Iterator[Tuple[Tuple[str, ...], Any]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _scalars(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _scalars(item, (*path, str(number)))
    else:
        yield path, node


def _pin(matrix: Matrix, file: pathlib.Path, path: Tuple[str, ...], node: Any) -> Optional[Pin]:
    try:
        requirement = Requirement(node.value)
    except InvalidRequirement:
        return None
    exact = [each.version for each in requirement.specifier if each.operator == "=="]
    if len(exact) != 1:
        return None
    axis, values = _use(matrix, file, path)
    named_after = series(values[0]) if values else exact[0].partition(".")[0]
    main = bool(values) and _is_named_after(matrix, axis, values[0], requirement.name)
    if path[:3] == ("framework", "sets", ALL):
        named_after, main = "", False
    elif not newest.within(exact[0], named_after) or not (
        main or "." in named_after or not values
    ):
        return None
    allowed = [
        python
        for python in sorted(matrix.axes["python"], key=specs.version_key)
        if _allowed(matrix, path, axis, values, python)
    ]
    for machine in _MACHINES:
        pythons = tuple(each for each in allowed if _applies(requirement, each, machine))
        if pythons:
            return Pin(
                *(file, node.start_mark.line + 1, requirement.name, exact[0], named_after),
                *(axis, values, pythons, machine, main),
            )
    return None


def _use(matrix: Matrix, file: pathlib.Path, path: Tuple[str, ...]) -> Tuple[str, Tuple[str, ...]]:
    """Return the axis, and those of its values that have the pin at ``path``."""
    if file == definition.FILE:
        return path[1], (path[2],)
    if path[:2] == ("framework", "sets"):
        pins = {name: each.pins for name, each in matrix.frameworks.items() if each.pins}
        # a value with several sets has a simpler one of each
        return "framework", tuple(n for n in pins if path[2] == ALL or pins[n] == (path[2],))
    axis = "cmake" if path[-1] == "cmake" else "mpi"
    named = schema.read(definition.FILE)["axes"][axis].items()
    return axis, tuple(name for name, entry in named if entry.get("pin") == ":".join(path))


def _is_named_after(matrix: Matrix, axis: str, value: str, name: str) -> bool:
    """Return whether the distribution ``name`` is the one that ``value`` is named after."""
    if axis != "framework":
        return Requirement(matrix.choices[axis][value].requirement).name == name
    framework = kind(value)
    return package(name) == externals.PACKAGES.get(framework, f"py-{framework}")


def _allowed(
    matrix: Matrix, path: Tuple[str, ...], axis: str, values: Tuple[str, ...], python: str
) -> bool:
    if path[:2] == ("framework", "sets"):
        return f"{python}.99" in SpecifierSet(pinned().framework.sets[path[2]].python)
    if axis == "framework":
        return python in matrix.frameworks[values[0]].python
    # what every cell has that names nothing else
    return python == matrix.axes["python"][0]


def _applies(requirement: Requirement, python: str, machine: str) -> bool:
    here = {
        "python_version": python,
        "python_full_version": f"{python}.99",
        "platform_machine": machine,
    }
    return not requirement.marker or requirement.marker.evaluate(here)
