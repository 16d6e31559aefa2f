"""``./hvd canary``."""

from __future__ import annotations

import pathlib
from typing import List, Optional

import typer

from hvd.build.pipeline import Options
from hvd.cli.common import SOURCES, option, takes
from hvd.core import console, paths
from hvd.core.errors import HvdError, nearest
from hvd.solve import location
from hvd.upkeep import canary as upkeep


@takes(*SOURCES, "python", "jobs", "verbose")
def canary(
    options: Options,
    names: Optional[List[str]] = typer.Argument(
        None,
        metavar="[NAME]...",
        help="Environments, or py-horovod for a plain Spack. \\[default: all]",
    ),
    to: Optional[pathlib.Path] = option(
        "--to DIR",
        "Where to write report.md and report.json. \\[default: .hvd/reports/canary]",
        None,
    ),
) -> None:
    """Concretize everything with the newest Spack and packages, and bisect failures.

    --spack and --packages name git repositories with their history. The bisection starts from the
    commits of --pair. Nothing is built, and no kept solution changes.

    Exit status: 1 if something has no valid solution.
    """
    known = upkeep.names()
    for name in names or []:
        if name not in known:
            raise HvdError(f"no environment is called '{name}'", nearest(name, known))
    report = upkeep.run(names or known, options)
    for path in report.write(to or paths.state() / "reports" / "canary"):
        console.note(paths.shorten(path))
    if not report.fix_needed:
        console.note(f"the newest Spack does not need {paths.shorten(location.FIX)}")
    for each in report.broken:
        since = f"since {each.commit.id[:12]} of {each.kind}" if each.commit else each.note
        console.note(f"{each.name} fails {since}")
    raise typer.Exit(1 if report.broken else 0)
