"""A Jupyter kernel that runs in a built environment, whatever environment Jupyter has."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Mapping, Optional

from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.deliver import activation
from hvd.model.built import Built

_START = '. "$0" && exec python -m ipykernel_launcher "$@"'


def install(
    built: Built, name: str, prefix: Optional[pathlib.Path], shell: Mapping[str, str]
) -> pathlib.Path:
    """Install the kernel ``name``, or replace one of ``./hvd``; return its directory.

    Args:
        prefix: of a Python or Jupyter; None for the user's own kernels.
        shell: the environment of the caller.
    """
    if not re.fullmatch(r"[a-z0-9._-]+", name):
        raise HvdError(f"--name: '{name}' is not a kernel name", "use a-z, 0-9, '.', '_' and '-'")
    plan = activation.plan(built)
    variables = plan.applied(shell)
    python = shutil.which("python", path=variables["PATH"]) or "python"
    imports = [python, "-c", "import ipykernel"]
    if subprocess.run(imports, env=variables, stderr=subprocess.DEVNULL).returncode:
        raise HvdError(f"{python} has no ipykernel", f"{python} -m pip install ipykernel")
    if prefix:
        data = prefix / "share" / "jupyter"
    else:
        home = shell.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
        data = pathlib.Path(shell.get("JUPYTER_DATA_DIR") or f"{home}/jupyter")
    directory = data / "kernels" / name
    file = directory / "kernel.json"
    if directory.exists() and not (file.is_file() and b'"hvd":' in file.read_bytes()):
        raise HvdError(
            f"{directory} is a kernel that ./hvd has not written",
            "choose another name with --name, or remove that kernel",
        )
    activation.write(plan, directory)
    specification = {
        "argv": ["/bin/sh", "-c", _START, "{resource_dir}/activate.sh", "-f", "{connection_file}"],
        "display_name": f"Horovod ({built.environment}, {built.engine})",
        "language": "python",
        "metadata": {"debugger": True, "hvd": built.name},
    }
    write_atomically(file, json.dumps(specification, indent=1).encode())
    return directory
