"""The module of a built environment, for Lmod or Environment Modules.

It does what ``spack load`` does for the whole environment, and is the same for both engines;
``spack module refresh`` writes a module for each package, and the date into each file.
"""

from __future__ import annotations

import json
import re
from typing import Mapping, NamedTuple, Sequence, Tuple

from hvd.core import paths, templates
from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.host import externals
from hvd.host.mpi import KINDS
from hvd.model import site
from hvd.model.built import Built
from hvd.model.site import Site, Use

#: Frameworks in a module's version; the others have their own names.
_SHORT = {"pytorch": "torch", "tensorflow": "tf"}
#: By module tool: the ending of its files, the file that names the default version among those
#: beside it, and the text of that for a module and its file.
TOOLS = {
    "lmod": (".lua", ".modulerc.lua", 'module_version("{0}", "default")\n'),
    "tcl": ("", ".version", "#%Module\nset ModulesVersion {1}\n"),
}
#: Options of `Site.variables` by the jobs that they are for.
_JOBS = {"one node": {"nodes": 1}, "many nodes": {"nodes": 2}, "RDMA": {"rdma": True}}


class Module(NamedTuple):
    """A module."""

    name: str  #: what users load, such as ``horovod/0.28.1-torch-2.13-openmpi-4.1``
    directory: str  #: for MODULEPATH, below the root
    files: Mapping[str, str]  #: its own and that which makes it the default, below the directory


def make(built: Built, machine: Site, use: Use, tool: str, suffix: str = "") -> Module:
    """Return the module of ``built`` at a site for ``tool``; its version ends in ``suffix``."""
    name = _name(built, machine, suffix)
    family, _, version = name.partition("/")
    loads = activation.modules(built, use)
    frameworks = ", ".join(
        f"{each} {externals.spack_version(version)}".strip()
        for each, version in sorted(built.frameworks.items())
    )
    facts = {
        "Name": family,
        "Version": built.version,
        "Description": f"Horovod, distributed training for {frameworks}",
        "Keywords": f"horovod, distributed training, allreduce, {built.gpu or 'cpu'}",
        "URL": "https://github.com/horovod/horovod",
        "Controllers": ", ".join(built.controllers),
        "Operations": ", ".join(built.operations),
        "MPI": str(built.mpi) or "none",
        "GPU architectures": f"{built.gpu} {', '.join(built.architectures)}".strip() or "none",
        "Python": built.python,
        "Compiler": str(built.compiler),
        "Built by": f"{built.engine}, from environment {built.environment}",
    }
    fabric = machine.variables(built.case)
    template = templates.environment().get_template(f"deliver/templates/module.{tool}.j2")
    text = template.render(
        name=name,
        whatis=[f"{title}: {fact}" for title, fact in facts.items()],
        # no module can set those that depend on the job
        hints=[
            f"In jobs with {job}: export {variable}={value}"
            for job, options in _JOBS.items()
            for variable, value in machine.variables(built.case, **options).items()
            if fabric.get(variable) != value
        ],
        conflicts=[family, *_other_mpis(built, machine, loads), *machine.modules.conflict],
        loads=loads,
        changes=[*activation.lists(built.changes), *activation.variables(built, fabric)],
        quote=_lua if tool == "lmod" else _tcl,
    )
    ending, default, line = TOOLS[tool]
    files = {f"{name}{ending}": text, f"{family}/{default}": line.format(name, version)}
    levels = [tool]
    if machine.modules.hierarchy:
        known = {"compiler": built.compiler, "mpi": built.mpi}
        software = [known[level] for level in machine.modules.hierarchy if known[level].name]
        # as Lmod and EasyBuild name them
        levels.append("MPI" if built.mpi in software else "Compiler" if software else "Core")
        levels += [word for each in software for word in (each.name, each.version)]
    return Module(name, "/".join(levels), files)


def _name(built: Built, machine: Site, suffix: str) -> str:
    """The site's projection, then all that tells variants apart and that it does not name."""
    projection = machine.modules.projection or "{name}/{version}"
    software = {"compiler": built.compiler, "^mpi": built.mpi}
    try:
        base = projection.format(name="horovod", version=built.version, **software)
    except (AttributeError, LookupError, ValueError):
        base = ""
    if not re.fullmatch(r"[\w.+-]+/[\w.+-]+", base):
        raise HvdError(
            f"{paths.shorten(site.file(machine.name))}: key 'modules:projection': "
            f"'{projection}' gives no name and version",
            "use {name}/{version}, {compiler.name}, {^mpi.name}, and their versions",
        )
    if not re.fullmatch(r"[\w.+-]*", suffix, re.ASCII):
        raise HvdError(f"--suffix: '{suffix}' is not a word", "use letters, digits, . _ + and -")
    marks = [base]
    for framework in sorted(built.frameworks, key=lambda name: (name not in _SHORT, name)):
        marks += [_SHORT.get(framework, framework), _minor(built.frameworks[framework])]
    if "mpi" not in built.controllers:
        marks.append("gloo")
    elif "^mpi" not in projection and "mpi" not in machine.modules.hierarchy:
        marks += [built.mpi.name, _minor(built.mpi.version)]
    if built.controllers == ("mpi",):
        marks.append("nogloo")
    if built.case != "cpu":
        marks.append(built.gpu if built.case == "mpi" else built.case)
    if "ccl" in built.operations:
        marks.append("ccl")
    if built.gpu_mpi and built.case != "mpi":
        marks.append("gpumpi")
    return "-".join(filter(None, [*marks, suffix]))


def _minor(version: str) -> str:
    return ".".join(externals.spack_version(version).split(".")[:2])


def _other_mpis(built: Built, machine: Site, loads: Sequence[str]) -> Tuple[str, ...]:
    """The modules of other MPIs, unless a module brings the right one.

    Their libraries would come before those that Horovod was linked with, by LD_LIBRARY_PATH.
    """
    known = sorted({module for kind in KINDS.values() for module in kind.modules})
    brought = {each.partition("/")[0] for each in loads}.intersection(known)
    if not built.mpi.name or "mpi" in machine.modules.hierarchy or brought:
        return ()
    # a module of the very MPI that it was built with may be loaded already
    same = KINDS[built.mpi.name].modules if built.mpi.name in KINDS else ()
    return tuple(module for module in known if module not in same)


def _lua(text: str) -> str:
    """A string as Lua reads it: JSON's escapes are Lua's, too."""
    return json.dumps(text, ensure_ascii=False)


def _tcl(text: str) -> str:
    """A word in which Tcl substitutes nothing; in ASCII, as tools decode other bytes variously."""
    escaped = re.sub(r'([\\"$\[\]{}])', r"\\\1", text).replace("\n", "\\n")
    return '"' + re.sub(r"[^\x00-\x7f]", lambda each: f"\\u{ord(each[0]):04x}", escaped) + '"'
