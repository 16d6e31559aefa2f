"""A Jupyter kernel for a built environment."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import Any, Dict, Mapping

from hvd.core.errors import HvdError
from hvd.deliver.activation import shells
from hvd.deliver.activation.plan import Plan
from hvd.model.built import Built

#: Where a kernel says in its metadata which environment it is of.
MARK = "hvd"
_NAME = re.compile(r"[a-z0-9._-]+")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where kernels go: the user's own directory, or below a prefix.

    Args:
        prefix: of a Python or Jupyter; empty for the user's directory.
    """

    prefix: str = ""

    @property
    def data(self) -> pathlib.Path:
        """Jupyter's data directory there, as JUPYTER_PATH wants it."""
        from jupyter_core import paths

        if self.prefix:
            return pathlib.Path(self.prefix) / "share" / "jupyter"
        return pathlib.Path(paths.jupyter_data_dir())


def specification(built: Built) -> Dict[str, Any]:
    """The content of ``kernel.json``.

    The kernel is started in the environment, whatever the environment of Jupyter is.
    """
    start = '. "$0" && exec python -m ipykernel_launcher "$@"'
    words = ["/bin/sh", "-c", start, "{resource_dir}/activate.sh", "-f", "{connection_file}"]
    return {
        "argv": words,
        "display_name": f"Horovod ({built.environment}, {built.engine})",
        "language": "python",
        "metadata": {"debugger": True, MARK: built.name},
    }


def require_ipykernel(python: str, variables: Mapping[str, str]) -> None:
    """Make sure that the environment's interpreter can be a kernel.

    Raises:
        HvdError: it has no ipykernel.
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


def install(built: Built, plan: Plan, name: str, place: Place) -> pathlib.Path:
    """Install the kernel ``name``; one of ours that is there already is replaced.

    Returns:
        The kernel's directory.

    Raises:
        HvdError: it cannot be called that, a kernel of another's is there, or the place cannot
            be written to.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    if not _NAME.fullmatch(name):
        raise HvdError(
            f"--name: '{name}' cannot be a kernel's name",
            "use lower-case letters, digits, '.', '_' and '-'",
        )
    _check_owner(place.data / "kernels" / name)
    where = {"prefix": place.prefix} if place.prefix else {"user": True}
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch, name)
        source.mkdir(mode=0o755)
        (source / "activate.sh").write_text(shells.render(plan, "activate.sh"))
        (source / "kernel.json").write_text(json.dumps(specification(built), indent=1) + "\n")
        try:
            return pathlib.Path(
                KernelSpecManager().install_kernel_spec(str(source), name, **where)
            )
        except (OSError, shutil.Error) as error:
            raise HvdError(
                f"cannot write {place.data / 'kernels' / name}: {error}",
                "choose another place: --user, --prefix DIR or --sys-prefix",
            ) from error


def _check_owner(directory: pathlib.Path) -> None:
    """Refuse to replace what is not ours.

    Raises:
        HvdError: a kernel that we did not write is in ``directory``.
    """
    if not directory.exists():
        return
    try:
        there = json.loads((directory / "kernel.json").read_text())
        ours = MARK in there.get("metadata", {})
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise HvdError(
            f"{directory} is a kernel that ./hvd has not written",
            "give this one another name with --name, or remove that one",
        )
