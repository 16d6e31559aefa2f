"""``./hvd lock``."""

from __future__ import annotations

import dataclasses
from typing import List, Optional

import typer

from hvd.build import solve_all
from hvd.build.pipeline import Options
from hvd.cli.common import takes
from hvd.model import environment
from hvd.model.versions import pinned


@takes("spack", "packages", "verbose")
def lock(
    options: Options,
    names: Optional[List[str]] = typer.Argument(
        None, metavar="[ENV]...", help="Site environments. \\[default: all]"
    ),
    check: bool = typer.Option(
        False, "--check", help="Fail if the solution changed; write nothing."
    ),
) -> None:
    """Concretize a site's environment with the default pair and store the solution in dag.json."""
    pair = pinned().pairs[0].name
    options = dataclasses.replace(options, sources=dataclasses.replace(options.sources, pair=pair))
    solve_all.keep(names or environment.of_sites(), options, check)
