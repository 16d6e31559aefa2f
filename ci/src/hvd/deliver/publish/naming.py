"""The name and version of a published module, and its directory in a hierarchy."""

from __future__ import annotations

import re
from typing import List, Tuple

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.model import site
from hvd.model.built import Built
from hvd.model.site import Modules, Site

#: The module's name for users.
NAME = "horovod"
#: Spack's projection where a site has none.
PROJECTION = "{name}/{version}"
#: Frameworks in a module's version.
_SHORT = {"pytorch": "torch", "tensorflow": "tf"}
_SUFFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+]*(-[A-Za-z0-9._+]+)*")
_NAMED = re.compile(r"[\w.+-]+/[\w.+-]+")


def name(built: Built, machine: Site, suffix: str = "") -> Tuple[str, str]:
    """Name and version of the module of ``built`` at a site.

    The site's projection comes first, then what tells variants of Horovod apart: frameworks,
    MPI, operations and controllers.  What the projection or the hierarchy names is not repeated.

    Raises:
        HvdError: the projection cannot be used, or ``suffix`` is not a word.
    """
    projection = machine.modules.projection or PROJECTION
    tokens = {
        "{name}": NAME,
        "{version}": built.version,
        "{compiler.name}": built.compiler.name,
        "{compiler.version}": built.compiler.version,
        "{^mpi.name}": built.mpi.name,
        "{^mpi.version}": built.mpi.version,
    }
    base = projection
    for token, value in tokens.items():
        base = base.replace(token, value)
    file = paths.shorten(site.file(machine.name))
    if not _NAMED.fullmatch(base):
        raise HvdError(
            f"{file}: key 'modules:projection': '{base}' is not a name and a version",
            f"use a projection such as {PROJECTION}, of {', '.join(tokens)}",
        )
    if suffix and not _SUFFIX.fullmatch(suffix):
        raise HvdError(f"--suffix: '{suffix}' is not a word", "use letters, digits, . _ + and -")
    module, version = base.split("/")
    mpi_named = "^mpi" in projection or "mpi" in machine.modules.hierarchy
    marks = [version, *_marks(built, mpi_named)]
    return module, "-".join([*marks, suffix] if suffix else marks)


def directory(built: Built, modules: Modules) -> str:
    """The module's directory in a hierarchy; empty for a flat tree.

    ``Core``, ``Compiler`` and ``MPI`` are the names in Lmod's and EasyBuild's hierarchies.
    """
    if not modules.hierarchy:
        return ""
    levels = []
    root = "Core"
    if "compiler" in modules.hierarchy:
        root = "Compiler"
        levels.append(f"{built.compiler.name}/{built.compiler.version}")
    if "mpi" in modules.hierarchy and built.mpi.name:
        root = "MPI"
        levels.append(f"{built.mpi.name}/{built.mpi.version}")
    return "/".join([root, *levels])


def _marks(built: Built, mpi_named: bool) -> List[str]:
    """The words that tell this variant of Horovod from others."""
    marks = []
    for framework in sorted(built.frameworks, key=lambda name: (name not in _SHORT, name)):
        marks.append(_SHORT.get(framework, framework))
        marks += _minor(built.frameworks[framework])
    if "mpi" not in built.controllers:
        marks.append("gloo")
    else:
        if not mpi_named:
            marks += [built.mpi.name, *_minor(built.mpi.version)]
        if "gloo" not in built.controllers:
            marks.append("nogloo")
    if built.case == "mpi":
        marks.append(built.gpu)
    elif built.case != "cpu":
        marks.append(built.case)
    if "ccl" in built.operations:
        marks.append("ccl")
    if built.gpu_mpi and built.case != "mpi":
        marks.append("gpumpi")
    return marks


def _minor(version: str) -> List[str]:
    """Major and minor version as one word; none where the version is not known."""
    release = version.partition("+")[0]
    return [".".join(release.split(".")[:2])] if release else []
