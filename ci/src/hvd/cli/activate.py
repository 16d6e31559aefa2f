"""``./hvd activate``."""

from __future__ import annotations

import pathlib
from typing import Optional

from hvd.cli.common import BuiltArgument, BuiltByOption, EngineName, flag, option
from hvd.core import console, paths
from hvd.deliver import activation
from hvd.model import built


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
    """Write activate.sh, .csh and .fish, to use a built environment without Spack.

    They load the site's modules and set its network variables; hvd_deactivate undoes it all.
    """
    subject = built.find(name, engine.value)
    directory = (to or subject.directory).expanduser().absolute()
    activation.write(activation.plan(subject, nodes, rdma), directory)
    shown = paths.shorten(directory)
    console.note(f"{shown}/: {', '.join(activation.FILES)}")
    console.note(f"to use it: . {shown}/activate.sh")
