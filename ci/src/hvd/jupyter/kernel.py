"""A Jupyter kernel for a built environment, and the job that runs JupyterLab around it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import Mapping

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.deliver import activation, template
from hvd.deliver.activation import Plan
from hvd.launch import batch, request
from hvd.model import environment
from hvd.model.built import Built

#: The key in a kernel's metadata that names its environment.
MARK = "hvd"
_NAME = re.compile(r"[a-z0-9._-]+")
#: Starts the kernel in its environment, whatever environment Jupyter has.
_START = '. "$0" && exec python -m ipykernel_launcher "$@"'


def data(prefix: str) -> pathlib.Path:
    """Jupyter's data directory below ``prefix``; the user's own if it is empty."""
    from jupyter_core.paths import jupyter_data_dir

    return pathlib.Path(prefix, "share", "jupyter") if prefix else pathlib.Path(jupyter_data_dir())


def require_ipykernel(python: str, variables: Mapping[str, str]) -> None:
    """Check that the environment's interpreter has ipykernel.

    Raises:
        HvdError: it has not.
    """
    done = subprocess.run(
        [python, "-c", "import ipykernel"], env=dict(variables), capture_output=True, text=True
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise HvdError(
            f"{python} cannot be a Jupyter kernel: {lines[-1] if lines else 'it does not start'}",
            f"{python} -m pip install ipykernel",
        )


def install(built: Built, plan: Plan, name: str, prefix: str) -> pathlib.Path:
    """Install the kernel ``name``, or replace one that this function installed.

    Args:
        prefix: of a Python or Jupyter; empty for the user's own kernels.

    Returns:
        The kernel's directory.

    Raises:
        HvdError: the name cannot be a kernel's, another kernel has it, or the directory cannot
            be written.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    if not _NAME.fullmatch(name):
        raise HvdError(
            f"--name: '{name}' cannot be a kernel's name",
            "use lower-case letters, digits, '.', '_' and '-'",
        )
    directory = data(prefix) / "kernels" / name
    if directory.exists() and not _is_ours(directory):
        raise HvdError(
            f"{directory} is a kernel that ./hvd has not written",
            "choose another name with --name, or remove that kernel",
        )
    specification = {
        "argv": [
            *("/bin/sh", "-c", _START, "{resource_dir}/activate.sh"),
            *("-f", "{connection_file}"),
        ],
        "display_name": f"Horovod ({built.environment}, {built.engine})",
        "language": "python",
        "metadata": {"debugger": True, MARK: built.name},
    }
    where = {"prefix": prefix} if prefix else {"user": True}
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch, name)
        source.mkdir(mode=0o755)
        (source / "activate.sh").write_text(activation.render(plan, "activate.sh"))
        (source / "kernel.json").write_text(json.dumps(specification, indent=1) + "\n")
        try:
            made = KernelSpecManager().install_kernel_spec(str(source), name, **where)
            return pathlib.Path(made)
        except (OSError, shutil.Error) as error:
            raise HvdError(
                f"cannot write {directory}: {error}",
                "choose another place: --user, --prefix DIR or --sys-prefix",
            ) from error


def _is_ours(directory: pathlib.Path) -> bool:
    try:
        there = json.loads((directory / "kernel.json").read_text())
        return MARK in there.get("metadata", {})
    except (OSError, ValueError, AttributeError):
        return False


def find_jupyter(given: str, *searched: Mapping[str, str]) -> str:
    """The absolute path of ``jupyter``: ``given``, or from the PATH of one of ``searched``.

    Raises:
        HvdError: there is none, or it has no JupyterLab beside it.
    """
    paths_ = [each.get("PATH", os.defpath) for each in searched]
    found = [shutil.which("jupyter-lab", path=path) for path in paths_]
    for candidate in [given] if given else filter(None, found):
        path = pathlib.Path(candidate).expanduser().absolute()
        if all(path.with_name(name).is_file() for name in ("jupyter", "jupyter-lab")):
            return str(path.with_name("jupyter"))
    raise HvdError(
        f"{given} has no jupyter-lab beside it" if given else "no jupyter-lab is on PATH",
        "load a module with JupyterLab or pip install jupyterlab, or name its jupyter: --jupyter",
    )


def write_lab(built: Built, jupyter: str, kernels: pathlib.Path, login: str) -> pathlib.Path:
    """Write the script that starts JupyterLab, and return its path.

    Args:
        jupyter: path of the program.
        kernels: Jupyter's data directory with the kernel.
        login: host, with or without a user, through which users reach the compute nodes.

    Raises:
        HvdError: it cannot be written.
    """
    values = {"jupyter": jupyter, "kernels": str(kernels), "login": login}
    text = template.render("jupyter/jupyterlab.sh.j2", **values)
    path = built.directory / "jupyterlab.sh"
    write_atomically(path, text.encode())
    path.chmod(0o755)
    return path


def job(built: Built, script: pathlib.Path, account: str, time: str, queue: str) -> str:
    """The batch script that runs ``script`` on one node.

    Raises:
        HvdError: the site has no scheduler.
    """
    asked = request.make(
        environment.base(environment.load(built.environment)),
        nodes=1,
        ranks_per_node=1,
        program=(str(script),),
        account=account,
        time=time,
        queue=queue,
        job_name="jupyterlab",
        # the kernel activates the environment; JupyterLab itself must not run in it
        setup=("umask 077",),
    )
    if asked.site.scheduler == "none":
        raise HvdError(
            f"{built.environment} is for machines without a scheduler",
            f"start it here: {paths.shorten(script)}",
        )
    request.check(asked)
    return batch.script(asked)
