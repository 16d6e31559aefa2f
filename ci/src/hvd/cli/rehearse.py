"""``./hvd rehearse``."""

from __future__ import annotations

from typing import List, Optional

import typer

from hvd.cli.common import flag
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.model import environment
from hvd.rehearse import rehearsal, result


def rehearse(
    names: Optional[List[str]] = typer.Argument(
        None, metavar="[ENV]...", help="Environments of sites; see ./hvd list."
    ),
    every: bool = flag("--all", "All environments of sites."),
    write: bool = flag("--write", "Keep the result with the environment: rehearsal.json."),
) -> None:
    """Build, launch and publish a site's environment here, with stand-ins for its software.

    For example: ./hvd rehearse stampede3-cpu-hvd
    """
    if bool(names) == every:
        raise HvdError("name environments, or give --all", "./hvd rehearse stampede3-cpu-hvd")
    table = console.table("Environment", "Passed", "Failed", "Not shown")
    failed = False
    for name in environment.of_sites() if every else names:
        done = rehearsal.run(name)
        # of all, some have no stand-ins
        failed = failed or bool(result.counts(done)[1]) or not (every or done.passed)
        table.add_row(name, *map(str, result.counts(done)))
        path = rehearsal.directory(name) / "result.json"
        if write:
            path = result.file(environment.load(name))
            result.save(path, done)
        console.note(f"result: {paths.shorten(path)}")
    console.out.print(table)
    raise typer.Exit(1 if failed else 0)
