"""``./hvd run``, the commands for its parts, and ``./hvd dev lock``, which keeps a solution."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Callable, List, Optional

import typer

from hvd.cli.common import ALL, EnvironmentArgument, JsonOption, SpecOption, chosen, flag, takes
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.core.options import Options
from hvd.engines import pipeline, solve_all
from hvd.model import environment
from hvd.model.versions import pinned


def up_to(stage: str, summary: str) -> Callable[..., None]:
    """Return the command that runs the stages up to ``stage``; ``summary`` is its help."""

    def command(options: Options, name: str = EnvironmentArgument, spec: str = SpecOption) -> None:
        pipeline.run(chosen(name, spec), options, last=stage)
        if stage == "setup":
            console.note(f"to use it: . {paths.shorten(paths.state() / 'setup-env.sh')}")

    command.__doc__ = summary
    return takes(*ALL)(command)


setup = up_to("setup", "Set up Spack (or pip): configuration, compilers, externals.")
build = up_to("build", "Set up, concretize and build.")
smoke = up_to("smoke", "Set up, concretize, build, and run Horovod on two ranks.")


@takes(*ALL)
def run(
    options: Options,
    name: str = EnvironmentArgument,
    spec: str = SpecOption,
    as_json: bool = JsonOption,
) -> None:
    """Set up, concretize, build, smoke-test and report: the main job."""
    if as_json:
        console.for_json()
    pipeline.run(chosen(name, spec), dataclasses.replace(options, json=as_json))


@takes(*ALL)
def concretize(
    options: Options,
    names: List[str] = typer.Argument(
        [environment.DEFAULT],
        metavar="ENV",
        help="Environments below environments/; see ./hvd list.",
    ),
    every: bool = flag("--all", "All environments, several at a time, with Spack."),
    spec: str = SpecOption,
    as_json: bool = JsonOption,
) -> None:
    """Set up and concretize."""
    if not every and len(names) == 1:
        if as_json:
            console.for_json()
        outcome = pipeline.run(chosen(names[0], spec), options, last="concretize")
        if as_json:
            nodes = [dataclasses.asdict(node) for node in outcome.solution.dag()]
            sys.stdout.write(json.dumps(nodes, indent=1) + "\n")
    elif spec or as_json or options.engine == "pip":
        raise HvdError(
            "--spec, --json and --engine pip work for one environment", "name one environment"
        )
    else:
        solve_all.run(environment.names() if every else names, options)


@takes("spack", "packages", "verbose")
def lock(
    options: Options,
    names: Optional[List[str]] = typer.Argument(
        None, metavar="ENV", help="Site environments. \\[default: all]"
    ),
    check: bool = flag("--check", "Fail if the solution changed; write nothing."),
) -> None:
    """Concretize a site's environment with the default pair and keep the solution: dag.txt."""
    pair = pinned().pairs[0].name
    options = dataclasses.replace(options, sources=dataclasses.replace(options.sources, pair=pair))
    solve_all.keep(names or environment.of_sites(), options, check)
