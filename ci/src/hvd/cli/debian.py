"""``./hvd debian``."""

from __future__ import annotations

from typing import List, Optional

import typer

from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.host import debian


def run(
    context: typer.Context,
    suite: str = typer.Argument(
        ...,
        metavar="SUITE",
        help="Root, such as trixie, or bookworm-ppc64el for another processor.",
    ),
    binds: Optional[List[str]] = typer.Option(
        None,
        "--bind",
        metavar="PATH",
        help="Directory of this machine to mount read-only.",
    ),
    options: Optional[List[str]] = typer.Option(
        None,
        "--apt",
        metavar="OPTION",
        help="apt option for the root, such as 'Acquire::Check-Valid-Until \"false\"' for an "
        "old snapshot of a mirror.",
    ),
) -> None:
    """Run a command in another Debian release or for another processor.

    For example: ./hvd debian trixie -- ./hvd matrix --filter compiler=gcc-13,gcc-14,clang-19

    mmdebstrap makes a root once, in the cache; bubblewrap runs the command there, in this
    checkout.  The roots and their packages are in ci/versions.yaml, key 'debian'.
    """  # fmt: skip
    if not context.args:
        raise HvdError("no command is given", f"./hvd debian {suite} -- COMMAND")
    log = paths.state() / "logs" / f"debian-{suite}.log"
    with console.step(f"a root of Debian's {suite}"):
        place = debian.root(suite, log, options or [])
    raise typer.Exit(debian.run(place, context.args, binds or []))
