"""From what was built, and what the site says of itself, to a module."""

from __future__ import annotations

import pathlib
from typing import Dict, List

from hvd.deliver.activation import parts
from hvd.deliver.publish import naming
from hvd.deliver.publish.module import Module
from hvd.host import externals
from hvd.model.built import Built, Change
from hvd.model.site import Site, Use

#: What the frameworks are called, by their name in the recipe.
_TITLES = {"keras": "Keras", "mxnet": "MXNet", "spark": "Spark", "ray": "Ray"}
_LIBRARIES = {"mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL", "ddl": "DDL", "ccl": "oneCCL"}
_GPUS = {"cuda": "CUDA", "rocm": "ROCm"}
#: When the cases of a site's fabric hold that no module can know of.
_TIMES = {
    "one_node": "in jobs on one node",
    "many_nodes": "in jobs on two nodes or more",
    "rdma": "where MPI uses RDMA",
}
#: What MPI's modules are called, in small letters.  The libraries of another one, on
#: LD_LIBRARY_PATH, would come before those that Horovod was linked with.
_MPIS = (
    "cray-mpich", "hpcx", "impi", "intel-mpi", "intelmpi", "mpich", "mvapich", "mvapich2",
    "openmpi", "spectrum-mpi",
)  # fmt: skip
#: The same as other sites write it.
_MPIS_WRITTEN = ("IntelMPI", "MPICH", "MVAPICH2", "OpenMPI")
#: What else the modules of an MPI are called than its package.
_SAME = {
    name: ("impi", "intel-mpi", "intelmpi", "intel-oneapi-mpi")
    for name in ("intel-mpi", "intel-oneapi-mpi")
}
_HOME = "https://github.com/horovod/horovod"


def describe(built: Built, machine: Site, use: Use, suffix: str = "") -> Module:
    """The module of a built environment.

    Args:
        built: what was built.
        machine: the site that it is published at.
        use: what the environment uses of the site.
        suffix: appended to the module's version.

    Raises:
        HvdError: there is no name for it.
    """
    name, version = naming.name(built, machine, suffix)
    # what depends on the job is said in the help
    fabric = machine.variables(built.case)
    return Module(
        name=name,
        version=version,
        directory=naming.directory(built, machine.modules),
        whatis=tuple(_whatis(built, name)),
        help=_help(built, machine, fabric),
        conflicts=tuple(
            dict.fromkeys([name, *_other_mpis(built, machine, use), *machine.modules.conflict])
        ),
        depends_on=tuple(parts.modules(built, use)),
        changes=(*parts.lists(built.changes), *_variables(built, fabric)),
    )


def _other_mpis(built: Built, machine: Site, use: Use) -> List[str]:
    """Modules of MPIs, where the one to run with is neither loaded nor asked for as a module."""
    names = {each.partition("/")[0].lower() for each in parts.modules(built, use)}
    asked_for = "mpi" in machine.modules.hierarchy
    if not built.mpi.name or asked_for or names.intersection(_MPIS):
        return []
    # a site may have a module of the very MPI that it was built with, loaded from the start
    same = _SAME.get(built.mpi.name, (built.mpi.name,)) if machine.modules.tool != "none" else ()
    return [name for name in (*_MPIS, *_MPIS_WRITTEN) if name.lower() not in same]


def _variables(built: Built, fabric: Dict[str, str]) -> List[Change]:
    values = parts.variables(built, fabric)
    return [Change("set", name, value) for name, value in values.items()]


def _whatis(built: Built, name: str) -> List[str]:
    words = [_LIBRARIES[each] for each in sorted({*built.controllers, *built.operations})]
    words += [_GPUS[built.gpu]] if built.gpu else ["CPU"]
    facts = _facts(built)
    return [
        f"Name: {name}",
        f"Version: {built.version}",
        f"Description: Horovod, distributed training for {facts['Frameworks']}",
        "Keywords: " + ", ".join(["horovod", "distributed training", "allreduce", *words]),
        f"URL: {_HOME}",
        *(f"{title}: {fact}" for title, fact in facts.items()),
    ]


def _facts(built: Built) -> Dict[str, str]:
    frameworks = [
        f"{_title(name)} {externals.spack_version(version)}".strip()
        for name, version in sorted(built.frameworks.items())
    ]
    titles = {**_LIBRARIES, "mpi": f"MPI ({built.mpi})"}
    controllers = [titles[each] for each in built.controllers]
    architectures = f"{_GPUS[built.gpu]} {', '.join(built.architectures)}" if built.gpu else "none"
    return {
        "Frameworks": ", ".join(frameworks),
        "Controllers": ", ".join(controllers),
        "Operations": ", ".join(_LIBRARIES[each] for each in built.operations),
        "GPU architectures": architectures.strip(),
        "Python": built.python,
        "Compiler": str(built.compiler),
        "Built by": f"{built.engine}, from environment {built.environment}",
    }


def _title(framework: str) -> str:
    package = externals.PACKAGES.get(framework, f"py-{framework}")
    return externals.FRAMEWORKS.get(package, _TITLES.get(framework, framework))


def _help(built: Built, machine: Site, fabric: Dict[str, str]) -> str:
    facts = _facts(built)
    width = max(map(len, facts)) + 2
    lines = [f"Horovod {built.version} for {facts['Frameworks']}.", ""]
    lines += [f"{title + ':':<{width}}{fact}" for title, fact in facts.items()]
    launcher = machine.launcher if machine.launcher != "horovodrun" else "mpirun"
    if "mpi" not in built.controllers:
        launcher = "horovodrun --gloo"
    lines += ["", f"To run on two ranks: {launcher} {'-n' if launcher == 'srun' else '-np'} 2 "]
    lines[-1] += "python train.py"
    lines += ["To see what it was built with: horovodrun --check-build"]
    if fabric:
        lines += ["", f"For {machine.name}'s network it sets {', '.join(sorted(fabric))}."]
    for case, time in _TIMES.items():
        for name, value in sorted(machine.fabric.get(case, {}).items()):
            lines.append(f"Set {name}={value} {time}.")
    return "\n".join(lines)


def unlocking(directory: pathlib.Path, tool: str) -> str:
    """The line for a site's own compiler or MPI module that opens ``directory`` to its users."""
    if tool == "lmod":
        return f'prepend_path("MODULEPATH", "{directory}")'
    return f"prepend-path MODULEPATH {directory}"
