"""``./hvd activate``, ``kernel``, ``publish`` and ``wheel``: how others use what was built."""

from __future__ import annotations

import os
import pathlib
import shlex
import sys
from typing import Optional

from hvd.cli.common import BuiltArgument, BuiltByOption, EngineName, flag, option
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.deliver import activation, modulefile
from hvd.deliver import kernel as kernels
from hvd.deliver import publish as publication
from hvd.deliver import wheel as wheels
from hvd.engines import components
from hvd.fetch import python_index
from hvd.launch.start import callers
from hvd.model import built, environment, site


def activate(
    name: str = BuiltArgument,
    engine: EngineName = BuiltByOption,
    to: Optional[pathlib.Path] = option(
        "--to DIR", "Output directory. \\[default: .hvd/activation/...]", None
    ),
    nodes: int = option(
        "--nodes N", "Number of nodes of the jobs, if the site's variables depend on it.", 2, min=1
    ),
    rdma: bool = flag("--rdma", "MPI uses RDMA (mpirun)."),
) -> None:
    """Write activate.sh, to use a built environment without Spack.

    It loads the site's modules and sets its network variables; hvd_deactivate undoes it all.
    """
    subject = built.find_current(name, engine.value)
    directory = (to or subject.directory).expanduser().absolute()
    path = activation.write(activation.plan(subject, nodes, rdma), directory)
    console.note(f"to use it: . {shlex.quote(paths.shorten(path))}")


def kernel(
    name: str = BuiltArgument,
    engine: EngineName = BuiltByOption,
    prefix: Optional[pathlib.Path] = option(
        "--prefix DIR", "Install in DIR/share/jupyter. \\[default: your own kernels]", None
    ),
    kernel_name: str = option("--name NAME", "Kernel name. \\[default: hvd-ENV-ENGINE]"),
) -> None:
    """Install a Jupyter kernel for a built environment.

    The environment's Python needs ipykernel; Jupyter itself may use another Python.
    """
    subject = built.find_current(name, engine.value)
    where = prefix and prefix.expanduser().absolute()
    chosen = kernel_name or f"hvd-{subject.name}"
    directory = kernels.install(subject, chosen, where, callers(os.environ))
    console.note(f"kernel: {paths.shorten(directory)}")


def publish(
    name: str = BuiltArgument,
    root: pathlib.Path = option("--root DIR", "Root of the module tree.", ...),
    tool: str = option("--tool lmod|tcl", "Module tool. \\[default: the site's]"),
    engine: EngineName = BuiltByOption,
    default: bool = flag("--default", "Make it the default version."),
    suffix: str = option("--suffix WORD", "Append this to the module's version."),
    replace: bool = flag("--replace", "Replace a module with the same name."),
    rollback: bool = flag("--rollback", "Go back to the previous publication."),
    dry_run: bool = flag("--dry-run", "Print the module's file; write nothing."),
) -> None:
    """Publish a built environment as a module for Lmod or Environment Modules.

    For example: ./hvd publish local-hvd --root /sw/modules --tool lmod
    """
    root = root.expanduser().resolve()
    if rollback:
        console.note(f"published again: {publication.roll_back(root)}")
        return
    base = environment.base(environment.load(name))
    machine = site.of(base)
    chosen = tool or machine.modules.tool
    if chosen not in modulefile.TOOLS:
        raise HvdError(f"'{chosen}' is not a module tool", "use --tool lmod or --tool tcl")
    subject = built.find_current(name, engine.value)
    module = modulefile.make(subject, machine, machine.environments[base], chosen, suffix)
    if dry_run:
        sys.stdout.write(next(iter(module.files.values())))
        return
    changed = publication.publish(root, module, default, replace)
    console.note(f"{'published' if changed else 'published already'}: {module.name}")
    place = shlex.quote(str(root / module.directory))
    if "/" in module.directory:
        console.note(f"to be prepended to MODULEPATH by the site's module: {place}")
    else:
        console.note(f"to use it: module use {place} && module load {module.name}")


def wheel(
    name: str = BuiltArgument,
    engine: EngineName = BuiltByOption,
    to: Optional[pathlib.Path] = option(
        "--to DIR", "Output directory. \\[default: .hvd/wheels]", None
    ),
) -> None:
    """Pack the Horovod of a built environment as a wheel, for pip on other machines.

    They need the same frameworks, MPI and Python. The wheel's version names them, and the wheel
    has the bill of materials.
    """
    subject = built.find_current(name, engine.value)
    directory = (to or paths.state() / "wheels").expanduser().absolute()
    log = paths.state() / "logs" / f"{subject.name}-wheel.log"
    bom = components.file(subject.environment, subject.engine)
    made = wheels.make(subject, bom, directory, log)
    console.note(f"{paths.shorten(made)}: sha256 {python_index.digest(made)}")
    found = f"--find-links {shlex.quote(str(directory))} horovod=={made.name.split('-')[1]}"
    console.note(f"to install it: pip install {found}")
