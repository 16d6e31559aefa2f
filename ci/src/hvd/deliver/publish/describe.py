"""A module, independent of the language of its file."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Dict, List, Mapping, Sequence, Tuple

from hvd.deliver import template
from hvd.deliver.activation import parts
from hvd.deliver.publish import naming
from hvd.host import externals
from hvd.model.built import Built, Modification
from hvd.model.site import Site, Use

_HELP = "deliver/publish/templates/help.txt.j2"
#: Names of frameworks for people, by their name in the recipe.
_TITLES = {"keras": "Keras", "mxnet": "MXNet", "spark": "Spark", "ray": "Ray"}
_LIBRARIES = {"mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL", "ddl": "DDL", "ccl": "oneCCL"}
_GPUS = {"cuda": "CUDA", "rocm": "ROCm"}
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
    """A module.

    Args:
        name: such as ``horovod``.
        version: what follows the name and a slash.
        directory: in a hierarchy, such as ``MPI/gcc/12.2.0/openmpi/4.1.4``; empty for a flat
            tree.
        whatis: lines for ``whatis`` and ``keyword``.
        help: the text of ``module help``.
        conflicts: modules that must not be loaded beside it.
        depends_on: modules that it loads first, in this order.
        changes: of the environment, undone when the module is unloaded.
    """

    name: str
    version: str
    directory: str
    whatis: Tuple[str, ...]
    help: str
    conflicts: Tuple[str, ...]
    depends_on: Tuple[str, ...]
    changes: Tuple[Modification, ...]

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
    name, version = naming.name(built, machine, suffix)
    fabric = machine.variables(built.case)
    facts = _facts(built)
    loads = parts.modules(built, use)
    conflicts = [name, *_other_mpis(built, machine, loads), *machine.modules.conflict]
    variables = [Modification("set", *each) for each in parts.variables(built, fabric).items()]
    return Module(
        name=name,
        version=version,
        directory=naming.directory(built, machine.modules),
        whatis=_whatis(built, name, facts),
        help=_help(built, machine, fabric, facts),
        conflicts=tuple(dict.fromkeys(conflicts)),
        depends_on=tuple(loads),
        changes=(*parts.lists(built.changes), *variables),
    )


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


def _whatis(built: Built, name: str, facts: Mapping[str, str]) -> Tuple[str, ...]:
    libraries = [_LIBRARIES[each] for each in sorted({*built.controllers, *built.operations})]
    keywords = ["horovod", "distributed training", "allreduce", *libraries]
    keywords.append(_GPUS.get(built.gpu, "CPU"))
    lines = {
        "Name": name,
        "Version": built.version,
        "Description": f"Horovod, distributed training for {facts['Frameworks']}",
        "Keywords": ", ".join(keywords),
        "URL": "https://github.com/horovod/horovod",
        **facts,
    }
    return tuple(f"{title}: {line}" for title, line in lines.items())


def _help(built: Built, machine: Site, fabric: Mapping[str, str], facts: Mapping[str, str]) -> str:
    launcher = "mpirun -np"
    if "mpi" not in built.controllers:
        launcher = "horovodrun --gloo -np"
    elif machine.launcher == "srun":
        launcher = "srun -n"
    elif machine.launcher != "horovodrun":
        launcher = f"{machine.launcher} -np"
    text = template.render(
        _HELP,
        version=built.version,
        facts=facts,
        width=max(map(len, facts)) + 2,
        launcher=launcher,
        site=machine,
        fabric=fabric,
        times=_TIMES,
    )
    return text.rstrip("\n")


def unlocking(directory: pathlib.Path, tool: str) -> str:
    """The line for a site's compiler or MPI module that makes ``directory`` visible to users."""
    if tool == "lmod":
        return f'prepend_path("MODULEPATH", "{directory}")'
    return f"prepend-path MODULEPATH {directory}"
