"""``./hvd ci``: the commands that pipelines call."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import sys
from typing import List, Optional

import typer

from hvd.build.pipeline import Options
from hvd.ci import propose as proposing
from hvd.ci import sites as site_ages
from hvd.ci.gitlab import generate as generating
from hvd.ci.gitlab import jobs
from hvd.cli.common import SOURCES, option, takes
from hvd.core import console, paths
from hvd.model import environment
from hvd.model.versions import pinned
from hvd.upkeep import proposal

app = typer.Typer(
    help="Commands for pipelines; see docs/pipelines.md.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

NamesArgument = typer.Argument(
    [environment.DEFAULT], metavar="[ENV]...", help="Environments; see ./hvd list."
)
NameArgument = typer.Argument(..., metavar="ENV", help="Environment of the job.")
CacheOption = option(
    "--cache URL|PATH",
    "Binary cache to search and push to. \\[default: below .hvd/ci]",
    envvar="HVD_CI_CACHE",
)
OutputOption = option(
    "--output -o FILE", "Child pipeline. \\[default: .hvd/ci/pipeline.yml]", None
)


@app.command(name="matrix")
def print_matrix() -> None:
    """Print the job matrix, one NAME=JSON per line, as $GITHUB_OUTPUT takes it."""
    axes = {
        "environments": environment.names(),
        "pairs": [pair.name for pair in pinned().pairs],
        "engines": ["spack", "pip"],
    }
    for name, values in axes.items():
        sys.stdout.write(f"{name}={json.dumps(values)}\n")


@app.command()
def sites() -> None:
    """List what is due to be checked again in the sites' files; exit status 1 if anything."""
    stale = site_ages.stale(datetime.date.today())
    for each in stale:
        console.note(each)
    raise typer.Exit(1 if stale else 0)


@app.command()
@takes(*SOURCES)
def generate(
    options: Options,
    names: List[str] = NamesArgument,
    cache: str = CacheOption,
    output: Optional[pathlib.Path] = OutputOption,
) -> None:
    """Write the GitLab pipeline that builds what a binary cache lacks, and tests it."""
    output = output or paths.state() / "ci" / "pipeline.yml"
    count = generating.generate(names, _by_spack(options), cache, output)
    console.note(f"{paths.shorten(output)}: {count} to build, {len(names)} to test")


@app.command()
@takes(*SOURCES, "jobs")
def rebuild(options: Options, name: str = NameArgument) -> None:
    """Build the package of a generated job, and push it to the binary cache."""
    jobs.rebuild(name, _by_spack(options))


@app.command()
@takes(*SOURCES)
def smoke(options: Options, name: str = NameArgument) -> None:
    """Install an environment from the binary cache, and test it on two ranks."""
    jobs.smoke(name, _by_spack(options))


@app.command()
def propose(
    directory: Optional[pathlib.Path] = option(
        "--from DIR",
        "Directory of proposals.json. \\[default: .hvd/versions]",
        None,
    ),
) -> None:
    """Push the proposals of ./hvd versions to a branch, and open a pull or merge request."""
    proposals = proposal.load(directory or paths.state() / "versions")
    branch = proposing.propose(proposals)
    console.note(f"pushed to {branch}" if branch else "nothing to change")


def _by_spack(options: Options) -> Options:
    return dataclasses.replace(options, engine="spack")
