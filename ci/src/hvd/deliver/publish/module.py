"""A module, independent of the language of its file: its name, contents and help."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Dict, List, Sequence, Tuple

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.deliver import activation, template
from hvd.host import externals
from hvd.model import site
from hvd.model.built import Built, Modification
from hvd.model.site import Modules, Site, Use

#: The module's name for users.
NAME = "horovod"
#: Spack's projection where a site has none.
PROJECTION = "{name}/{version}"
#: Frameworks in a module's version; others have their own names.
_SHORT = {"pytorch": "torch", "tensorflow": "tf"}
_SUFFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+]*(-[A-Za-z0-9._+]+)*")
_NAMED = re.compile(r"[\w.+-]+/[\w.+-]+")
_HELP = "deliver/templates/help.txt.j2"
#: Names of frameworks for people, by their name in the recipe.
_TITLES = {"keras": "Keras", "mxnet": "MXNet", "spark": "Spark", "ray": "Ray"}
_LIBRARIES = {"mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL", "ddl": "DDL", "ccl": "oneCCL"}
_GPUS = {"cuda": "CUDA", "rocm": "ROCm"}
_KEYWORDS = ("horovod", "distributed training", "allreduce")
#: The cases of a site's fabric that depend on the job, so that no module can set them.
_TIMES = {
    "one_node": "in jobs on one node",
    "many_nodes": "in jobs on two nodes or more",
    "rdma": "where MPI uses RDMA",
}
#: Names of MPIs' modules.  Another MPI's libraries would come before those that Horovod was
#: linked with, by LD_LIBRARY_PATH.
_MPIS = (
    "cray-mpich", "hpcx", "impi", "intel-mpi", "intelmpi", "mpich", "mvapich", "mvapich2",
    "openmpi", "spectrum-mpi", "IntelMPI", "MPICH", "MVAPICH2", "OpenMPI",
)  # fmt: skip
_INTEL_MPIS = ("impi", "intel-mpi", "intelmpi", "intel-oneapi-mpi")


@dataclasses.dataclass(frozen=True)
class Module:
    """A module."""

    name: str  #: such as ``horovod``
    version: str  #: what follows the name and a slash
    directory: str  #: in a hierarchy, ``MPI/gcc/12.2.0/openmpi/4.1.4``; empty for a flat tree
    whatis: Tuple[str, ...]  #: lines for ``whatis`` and ``keyword``
    help: str  #: the text of ``module help``
    conflicts: Tuple[str, ...]  #: modules that must not be loaded beside it
    depends_on: Tuple[str, ...]  #: modules that it loads first, in this order
    changes: Tuple[Modification, ...]  #: of the environment, undone when it is unloaded

    @property
    def full_name(self) -> str:
        """The name that users type."""
        return f"{self.name}/{self.version}"


def describe(built: Built, machine: Site, use: Use, suffix: str = "") -> Module:
    """The module of a built environment.

    Args:
        machine: the site to publish it at.
        use: what the environment uses of the site.
        suffix: appended to the module's version.

    Raises:
        HvdError: the module cannot be named.
    """
    module, version = name(built, machine, suffix)
    fabric = machine.variables(built.case)
    facts = _facts(built)
    loads = activation.modules(built, use)
    conflicts = [module, *_other_mpis(built, machine, loads), *machine.modules.conflict]
    libraries = [_LIBRARIES[each] for each in sorted({*built.controllers, *built.operations})]
    lines = {
        "Name": module,
        "Version": built.version,
        "Description": f"Horovod, distributed training for {facts['Frameworks']}",
        "Keywords": ", ".join([*_KEYWORDS, *libraries, _GPUS.get(built.gpu, "CPU")]),
        "URL": "https://github.com/horovod/horovod",
        **facts,
    }
    text = template.render(
        _HELP,
        version=built.version,
        facts=facts,
        width=max(map(len, facts)) + 2,
        launcher=_launcher(built, machine),
        site=machine,
        fabric=fabric,
        times=_TIMES,
    )
    return Module(
        name=module,
        version=version,
        directory=_directory(built, machine.modules),
        whatis=tuple(f"{title}: {line}" for title, line in lines.items()),
        help=text.rstrip("\n"),
        conflicts=tuple(dict.fromkeys(conflicts)),
        depends_on=tuple(loads),
        changes=(*activation.lists(built.changes), *activation.variables(built, fabric)),
    )


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
    if not _NAMED.fullmatch(base):
        file = paths.shorten(site.file(machine.name))
        raise HvdError(
            f"{file}: key 'modules:projection': '{base}' is not a name and a version",
            f"use a projection such as {PROJECTION}, of {', '.join(tokens)}",
        )
    if suffix and not _SUFFIX.fullmatch(suffix):
        raise HvdError(f"--suffix: '{suffix}' is not a word", "use letters, digits, . _ + and -")
    module, version = base.split("/")
    mpi_named = "^mpi" in projection or "mpi" in machine.modules.hierarchy
    return module, "-".join(filter(None, [version, *_marks(built, mpi_named), suffix]))


def _marks(built: Built, mpi_named: bool) -> List[str]:
    """The words that tell this variant of Horovod from others; empty where not known."""
    marks = []
    for framework in sorted(built.frameworks, key=lambda name: (name not in _SHORT, name)):
        marks += [_SHORT.get(framework, framework), _minor(built.frameworks[framework])]
    if "mpi" not in built.controllers:
        marks.append("gloo")
    else:
        if not mpi_named:
            marks += [built.mpi.name, _minor(built.mpi.version)]
        if "gloo" not in built.controllers:
            marks.append("nogloo")
    if built.case != "cpu":
        marks.append(built.gpu if built.case == "mpi" else built.case)
    if "ccl" in built.operations:
        marks.append("ccl")
    if built.gpu_mpi and built.case != "mpi":
        marks.append("gpumpi")
    return marks


def _minor(version: str) -> str:
    """Major and minor version."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def _directory(built: Built, modules: Modules) -> str:
    """The module's directory in a hierarchy; empty for a flat tree.

    ``Core``, ``Compiler`` and ``MPI`` are the names in Lmod's and EasyBuild's hierarchies.
    """
    if not modules.hierarchy:
        return ""
    levels = ["Core"]
    if "compiler" in modules.hierarchy:
        levels = ["Compiler", built.compiler.name, built.compiler.version]
    if "mpi" in modules.hierarchy and built.mpi.name:
        levels = ["MPI", *levels[1:], built.mpi.name, built.mpi.version]
    return "/".join(levels)


def _other_mpis(built: Built, machine: Site, loads: Sequence[str]) -> List[str]:
    """The modules of other MPIs, unless a module brings the right one."""
    names = {each.partition("/")[0].lower() for each in loads}
    if not built.mpi.name or "mpi" in machine.modules.hierarchy or names.intersection(_MPIS):
        return []
    if machine.modules.tool == "none":
        return list(_MPIS)
    # the site may load a module of the very MPI that it was built with by default
    same = _INTEL_MPIS if built.mpi.name in _INTEL_MPIS else (built.mpi.name,)
    return [name for name in _MPIS if name.lower() not in same]


def _facts(built: Built) -> Dict[str, str]:
    frameworks = [
        f"{_title(name)} {externals.spack_version(version)}".strip()
        for name, version in sorted(built.frameworks.items())
    ]
    controllers = {**_LIBRARIES, "mpi": f"MPI ({built.mpi})"}
    architectures = f"{_GPUS[built.gpu]} {', '.join(built.architectures)}" if built.gpu else "none"
    return {
        "Frameworks": ", ".join(frameworks),
        "Controllers": ", ".join(controllers[each] for each in built.controllers),
        "Operations": ", ".join(_LIBRARIES[each] for each in built.operations),
        "GPU architectures": architectures.strip(),
        "Python": built.python,
        "Compiler": str(built.compiler),
        "Built by": f"{built.engine}, from environment {built.environment}",
    }


def _title(framework: str) -> str:
    package = externals.PACKAGES.get(framework, f"py-{framework}")
    return externals.FRAMEWORKS.get(package, _TITLES.get(framework, framework))


def _launcher(built: Built, machine: Site) -> str:
    if "mpi" not in built.controllers:
        return "horovodrun --gloo -np"
    # horovodrun is not needed where there is MPI
    launcher = "mpirun" if machine.launcher == "horovodrun" else machine.launcher
    return f"{launcher} {'-n' if launcher == 'srun' else '-np'}"


def unlocking(directory: pathlib.Path, tool: str) -> str:
    """The line for a site's compiler or MPI module that makes ``directory`` visible to users."""
    if tool == "lmod":
        return f'prepend_path("MODULEPATH", "{directory}")'
    return f"prepend-path MODULEPATH {directory}"
