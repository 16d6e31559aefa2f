"""A Jupyter kernel for a built environment."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import Mapping

from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.deliver.activation import Plan
from hvd.model.built import Built

#: The key in a kernel's metadata that names its environment.
MARK = "hvd"
_NAME = re.compile(r"[a-z0-9._-]+")
#: Starts the kernel in its environment, whatever environment Jupyter has.
_START = '. "$0" && exec python -m ipykernel_launcher "$@"'


def data(prefix: str) -> pathlib.Path:
    """Jupyter's data directory below ``prefix``; the user's own if it is empty."""
    from jupyter_core import paths

    if prefix:
        return pathlib.Path(prefix, "share", "jupyter")
    return pathlib.Path(paths.jupyter_data_dir())


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
            return pathlib.Path(
                KernelSpecManager().install_kernel_spec(str(source), name, **where)
            )
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
