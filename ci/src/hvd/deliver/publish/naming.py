"""What a published module is called, and where a hierarchy has it."""

from __future__ import annotations

import re
from typing import List, Tuple

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.model import site
from hvd.model.built import Built
from hvd.model.site import Modules, Site

#: What users call Horovod's module.
NAME = "horovod"
#: Spack's projection where a site has none.
PROJECTION = "{name}/{version}"
#: How frameworks are called in a module's version.
_SHORT = {"pytorch": "torch", "tensorflow": "tf"}
_SUFFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+]*(-[A-Za-z0-9._+]+)*")
_NAMED = re.compile(r"[\w.+-]+/[\w.+-]+")


def name(built: Built, machine: Site, suffix: str = "") -> Tuple[str, str]:
    """Name and version of the module of ``built`` at a site.

    The site's projection comes first.  What sets variants of Horovod apart follows: frameworks,
    MPI, operations, controllers; what the projection or the hierarchy says already does not.

    Raises:
        HvdError: the projection cannot be used, or ``suffix`` is not a word.
    """
    projection = machine.modules.projection or PROJECTION
    tokens = {
        "name": NAME,
        "version": built.version,
        "compiler.name": built.compiler.name,
        "compiler.version": built.compiler.version,
        "^mpi.name": built.mpi.name,
        "^mpi.version": built.mpi.version,
    }

    def value(match: re.Match) -> str:
        if match[1] not in tokens:
            known = ", ".join(f"{{{token}}}" for token in tokens)
            raise _wrong(machine, f"'{match[0]}' is not known", f"use some of {known}")
        return tokens[match[1]]

    base = re.sub(r"\{([^{}]*)\}", value, projection)
    if not _NAMED.fullmatch(base):
        raise _wrong(machine, f"'{base}' is not a name and a version", f"such as {PROJECTION}")
    if suffix and not _SUFFIX.fullmatch(suffix):
        raise HvdError(f"--suffix: '{suffix}' is not a word", "use letters, digits, . _ + and -")
    module, version = base.split("/")
    told = "^mpi" in projection or "mpi" in machine.modules.hierarchy
    return module, "-".join([version, *_marks(built, told), *filter(None, [suffix])])


def directory(built: Built, modules: Modules) -> str:
    """Where a hierarchy has the module; empty for a flat tree.

    The names are those that Lmod's and EasyBuild's hierarchies have: ``Core``, ``Compiler``,
    ``MPI``.
    """
    if not modules.hierarchy:
        return ""
    compiler = f"{built.compiler.name}/{built.compiler.version}"
    mpi = f"{built.mpi.name}/{built.mpi.version}"
    if "mpi" in modules.hierarchy and built.mpi.name:
        return f"MPI/{compiler}/{mpi}" if "compiler" in modules.hierarchy else f"MPI/{mpi}"
    return f"Compiler/{compiler}" if "compiler" in modules.hierarchy else "Core"


def minor(version: str) -> str:
    """Major and minor version."""
    return ".".join(version.split("+")[0].split(".")[:2])


def _marks(built: Built, mpi_told: bool) -> List[str]:
    """What sets this variant of Horovod apart."""
    marks = [
        "-".join(filter(None, [_SHORT.get(framework, framework), minor(version)]))
        for framework, version in sorted(built.frameworks.items(), key=_order)
    ]
    if "mpi" in built.controllers:
        marks += [] if mpi_told else [f"{built.mpi.name}-{minor(built.mpi.version)}"]
        marks += [] if "gloo" in built.controllers else ["nogloo"]
    else:
        marks.append("gloo")
    marks += {"nccl": ["nccl"], "rccl": ["rccl"], "ddl": ["ddl"]}.get(built.case, [])
    marks += [built.gpu] if built.case == "mpi" else []
    marks += ["ccl"] if "ccl" in built.operations else []
    return marks + (["gpumpi"] if built.gpu_mpi and built.case != "mpi" else [])


def _order(item: Tuple[str, str]) -> Tuple[int, str]:
    """Those with a short name first, in that order."""
    known = list(_SHORT)
    return (known.index(item[0]) if item[0] in known else len(known), item[0])


def _wrong(machine: Site, what: str, remedy: str) -> HvdError:
    shown = paths.shorten(site.file(machine.name))
    return HvdError(f"{shown}: key 'modules:projection': {what}", remedy)
