"""``./hvd kernel``."""

from __future__ import annotations

import os
import shutil
import sys

import typer

from hvd.cli.common import BuiltArgument, BuiltByOption, EngineName
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.jupyter import kernel
from hvd.launch.start import callers
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
    user: bool = _flag("--user", _WHERE, "For yourself, in your home: where none is chosen."),
    prefix: str = _text("--prefix", "DIR", _WHERE, "Below DIR/share/jupyter."),
    sys_prefix: bool = _flag("--sys-prefix", _WHERE, "Below the environment's own Python."),
    kernel_name: str = _text("--name", "NAME", _WHERE, "Its name; hvd-ENV-ENGINE if not given."),
    whole_script: bool = _flag(
        "--batch", _JOB, "Print the batch script that starts JupyterLab on a node, too."
    ),
    jupyter: str = _text("--jupyter", "PATH", _JOB, "The jupyter to start; that of PATH if not."),
    login: str = _text("--login", "[USER@]HOST", _JOB, "How the machine is reached by ssh."),
    account: str = _text("--account", "NAME", _JOB, "Account to charge."),
    time: str = _text("--time", "H:MM:SS", _JOB, "Time limit."),
    queue: str = _text("--queue", "NAME", _JOB, "Queue, partition or quality of service."),
) -> None:
    """Install a Jupyter kernel for a built environment.

    The environment's Python needs ipykernel; Jupyter itself may be of another Python.
    """
    if [user, bool(prefix), sys_prefix].count(True) > 1:
        raise HvdError("--user, --prefix and --sys-prefix exclude each other", "choose one")
    subject = built.find(name, engine.value)
    wanted = activation.plan(subject)
    caller = callers(os.environ)
    after = wanted.applied(caller)
    python = shutil.which("python", path=after["PATH"]) or "python"
    kernel.require_ipykernel(python, after)
    if prefix:
        prefix = os.path.abspath(os.path.expanduser(prefix))
    elif sys_prefix:
        # <prefix>/bin/python
        prefix = os.path.dirname(os.path.dirname(python))
    program = kernel.find_jupyter(jupyter, caller, after) if whole_script else ""
    directory = kernel.install(subject, wanted, kernel_name or f"hvd-{subject.name}", prefix)
    console.aside(f"kernel: {paths.shorten(directory)}")
    if whole_script:
        site = environment.load(subject.environment).site
        host = login or f"<login node of {site or 'this machine'}>"
        script = kernel.write_lab(subject, program, kernel.data(prefix), host)
        sys.stdout.write(kernel.job(subject, script, account, time, queue))
        console.aside(f"it starts {paths.shorten(script)}, which prints the tunnel's command:")
        console.aside(f"ssh -N -L PORT:127.0.0.1:PORT -J {host} NODE")
