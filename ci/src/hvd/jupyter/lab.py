"""The script that starts JupyterLab on a compute node, and the job that runs it."""

from __future__ import annotations

import os
import pathlib
import shutil
from typing import Mapping

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.deliver import activation, template
from hvd.launch import batch, request
from hvd.launch.request import Request
from hvd.model import environment
from hvd.model.built import Built

_SCRIPT = "jupyter/jupyterlab.sh.j2"


def find(given: str, *searched: Mapping[str, str]) -> str:
    """The absolute path of ``jupyter``: ``given``, or from the PATH of one of ``searched``.

    Raises:
        HvdError: there is none, or it has no JupyterLab beside it.
    """
    candidates = [given]
    if not given:
        paths_ = [each.get("PATH", os.defpath) for each in searched]
        candidates = [shutil.which("jupyter-lab", path=path) or "" for path in paths_]
    for candidate in filter(None, candidates):
        path = pathlib.Path(candidate).expanduser().absolute()
        jupyter = path.with_name("jupyter")
        if path.with_name("jupyter-lab").is_file() and jupyter.is_file():
            return str(jupyter)
    raise HvdError(
        f"{given} has no jupyter-lab beside it" if given else "no jupyter-lab is on PATH",
        "load a module with JupyterLab or pip install jupyterlab, or name its jupyter: --jupyter",
    )


def write(built: Built, jupyter: str, kernels: pathlib.Path, login: str) -> pathlib.Path:
    """Write the script that starts JupyterLab, and return its path.

    Args:
        jupyter: path of the program.
        kernels: Jupyter's data directory with the kernel.
        login: host, with or without a user, through which users reach the compute nodes.

    Raises:
        HvdError: it cannot be written.
    """
    text = template.render(_SCRIPT, jupyter=jupyter, kernels=str(kernels), login=login)
    path = built.directory / "jupyterlab.sh"
    write_atomically(path, text.encode())
    path.chmod(0o755)
    return path


def job(built: Built, script: pathlib.Path, account: str, time: str, queue: str) -> str:
    """The batch script that runs ``script`` on one node.

    Raises:
        HvdError: the site has no scheduler.
    """
    machine, use = activation.place(built)
    if not machine or machine.scheduler == "none":
        raise HvdError(
            f"{built.environment} is for machines without a scheduler",
            f"start it here: {paths.shorten(script)}",
        )
    asked = Request(
        site=machine,
        environment=environment.base(environment.load(built.environment)),
        partition=machine.partitions[use.partition],
        nodes=1,
        ranks_per_node=1,
        method=machine.launcher,
        program=(str(script),),
        account=account,
        time=time,
        queue=queue,
        job_name="jupyterlab",
        # the kernel activates the environment; JupyterLab itself must not run in it
        setup=("umask 077",),
    )
    request.check(asked)
    return batch.script(asked)
