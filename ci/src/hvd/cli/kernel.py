"""``./hvd kernel``."""

from __future__ import annotations

import os
import shutil
import sys

import typer

from hvd.cli.common import BuiltArgument, BuiltByOption, EngineName
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.deliver.activation import plan
from hvd.jupyter import kernel, lab
from hvd.launch.program import callers
from hvd.model import built, environment

_WHERE = "Where the kernel goes"
_JOB = "The job (with --batch)"


def _text(name: str, metavar: str, panel: str, help: str):
    return typer.Option(
        "", name, metavar=metavar, help=help, show_default=False, rich_help_panel=panel
    )


def _flag(name: str, panel: str, help: str):
    return typer.Option(False, name, help=help, show_default=False, rich_help_panel=panel)


def install_kernel(
    name: str = BuiltArgument,
    engine: EngineName = BuiltByOption,
    user: bool = _flag("--user", _WHERE, "In your home directory: the default."),
    prefix: str = _text("--prefix", "DIR", _WHERE, "In DIR/share/jupyter."),
    sys_prefix: bool = _flag("--sys-prefix", _WHERE, "In the environment's own Python."),
    kernel_name: str = _text("--name", "NAME", _WHERE, "Kernel name. \\[default: hvd-ENV-ENGINE]"),
    whole_script: bool = _flag(
        "--batch", _JOB, "Also print a batch script that starts JupyterLab on a node."
    ),
    jupyter: str = _text("--jupyter", "PATH", _JOB, "jupyter to start. \\[default: from PATH]"),
    login: str = _text("--login", "[USER@]HOST", _JOB, "Login node, for the ssh command."),
    account: str = _text("--account", "NAME", _JOB, "Account to charge."),
    time: str = _text("--time", "H:MM:SS", _JOB, "Time limit."),
    queue: str = _text("--queue", "NAME", _JOB, "Queue, partition or quality of service."),
) -> None:
    """Install a Jupyter kernel for a built environment.

    The environment's Python needs ipykernel; Jupyter itself may use another Python.
    """
    if [user, bool(prefix), sys_prefix].count(True) > 1:
        raise HvdError("--user, --prefix and --sys-prefix exclude each other", "choose one")
    subject = built.find(name, engine.value)
    wanted = plan.make(subject)
    caller = callers(os.environ)
    after = wanted.applied(caller)
    python = shutil.which("python", path=after["PATH"]) or "python"
    kernel.require_ipykernel(python, after)
    if prefix:
        prefix = os.path.abspath(os.path.expanduser(prefix))
    elif sys_prefix:
        # <prefix>/bin/python
        prefix = os.path.dirname(os.path.dirname(python))
    program = lab.find(jupyter, caller, after) if whole_script else ""
    directory = kernel.install(subject, wanted, kernel_name or f"hvd-{subject.name}", prefix)
    console.aside(f"kernel: {paths.shorten(directory)}")
    if whole_script:
        site = environment.load(subject.environment).site
        host = login or f"<login node of {site or 'this machine'}>"
        script = lab.write(subject, program, kernel.data(prefix), host)
        sys.stdout.write(lab.job(subject, script, account, time, queue))
        console.aside(f"it starts {paths.shorten(script)}, which prints the tunnel's command:")
        console.aside(f"ssh -N -L PORT:127.0.0.1:PORT -J {host} NODE")
