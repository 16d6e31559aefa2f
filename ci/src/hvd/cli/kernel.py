"""``./hvd kernel``."""

from __future__ import annotations

import functools
import os
import shutil
import sys

from hvd.cli.common import BuiltArgument, BuiltByOption, EngineName, option
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.jupyter import kernel
from hvd.launch.start import callers
from hvd.model import built, environment

_where = functools.partial(option, rich_help_panel="Where the kernel goes")
_job = functools.partial(option, rich_help_panel="The job (with --batch)")


def install_kernel(
    name: str = BuiltArgument,
    engine: EngineName = BuiltByOption,
    user: bool = _where("--user", "In your home directory: the default.", False),
    prefix: str = _where("--prefix DIR", "In DIR/share/jupyter."),
    sys_prefix: bool = _where("--sys-prefix", "In the environment's own Python.", False),
    kernel_name: str = _where("--name NAME", "Kernel name. \\[default: hvd-ENV-ENGINE]"),
    whole_script: bool = _job(
        "--batch", "Also print a batch script that starts JupyterLab on a node.", False
    ),
    jupyter: str = _job("--jupyter PATH", "jupyter to start. \\[default: from PATH]"),
    login: str = _job("--login [USER@]HOST", "Login node, for the ssh command."),
    account: str = _job("--account NAME", "Account to charge."),
    time: str = _job("--time H:MM:SS", "Time limit."),
    queue: str = _job("--queue NAME", "Queue, partition or quality of service."),
) -> None:
    """Install a Jupyter kernel for a built environment.

    The environment's Python needs ipykernel; Jupyter itself may use another Python.
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
