"""``./hvd activate``."""

from __future__ import annotations

import pathlib
from typing import Optional

import typer

from hvd.cli.common import BuiltArgument, BuiltByOption, EngineName
from hvd.core import console, paths
from hvd.deliver.activation import plan, shells
from hvd.model import built


def activate(
    name: str = BuiltArgument,
    engine: EngineName = BuiltByOption,
    to: Optional[pathlib.Path] = typer.Option(
        None, "--to", metavar="DIR", help="Output directory. \\[default: .hvd/activation/...]",
        show_default=False,
    ),
    nodes: int = typer.Option(
        2, "--nodes", min=1, metavar="N",
        help="Number of nodes of the jobs, if the site's variables depend on it.",
    ),
    rdma: bool = typer.Option(False, "--rdma", help="MPI uses RDMA (mpirun)."),
) -> None:  # fmt: skip
    """Write activate.sh, .csh and .fish, to use a built environment without Spack.

    They load the site's modules and set its network variables; hvd_deactivate undoes it all.
    """
    subject = built.find(name, engine.value)
    directory = (to or subject.directory).expanduser().absolute()
    shells.write(plan.make(subject, nodes=nodes, rdma=rdma), directory)
    shown = paths.shorten(directory)
    console.note(f"{shown}/: {', '.join(shells.FILES)}")
    console.note(f"to use it: . {shown}/activate.sh")
