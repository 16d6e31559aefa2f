"""``./hvd debian``."""

from __future__ import annotations

from typing import List, Optional

import typer

from hvd.cli.common import option
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.core.steps import Step
from hvd.host import debian


def enter(
    context: typer.Context,
    suite: str = typer.Argument(
        ...,
        metavar="SUITE",
        help="Root, such as trixie, or bookworm-ppc64el for another processor.",
    ),
    binds: Optional[List[str]] = option(
        "--bind PATH", "Directory of this machine to mount read-only.", None
    ),
    options: Optional[List[str]] = option(
        "--apt OPTION",
        "apt option for the root, such as 'Acquire::Check-Valid-Until \"false\"' for an "
        "old snapshot of a mirror.",
        None,
    ),
) -> None:
    """Run a command in another Debian release or for another processor.

    For example: ./hvd debian trixie -- ./hvd matrix --filter compiler=gcc-13,gcc-14,clang-19

    mmdebstrap makes a root once, in the cache; bubblewrap runs the command there, in this
    checkout.  The roots and their packages are in ci/versions.yaml, key 'debian'.
    """
    if not context.args:
        raise HvdError("no command is given", f"./hvd debian {suite} -- COMMAND")
    log = paths.state() / "logs" / f"debian-{suite}.log"
    with console.step(Step(f"a root of Debian's {suite}")):
        place = debian.root(suite, log, options or [])
    raise typer.Exit(debian.run(place, context.args, binds or []))
