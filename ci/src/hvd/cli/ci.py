"""``./hvd dev ci``: the commands that pipelines call."""

from __future__ import annotations

import dataclasses
import datetime
import json

import typer

from hvd.ci import gitlab
from hvd.ci import sites as site_ages
from hvd.cli.common import SOURCES, group, option, takes
from hvd.core import console, paths
from hvd.core.options import Options
from hvd.model import environment
from hvd.model.versions import pinned

app = group("Commands for pipelines; see docs/pipelines.md.")
NameArgument = typer.Argument(environment.DEFAULT, metavar="ENV", help="Environment of the job.")
CacheOption = option(
    "--cache URL|PATH",
    "Binary cache to search and push to. \\[default: below .hvd/ci]",
    envvar="HVD_CI_CACHE",
)


@app.command()
def matrix() -> None:
    """Print the job matrix, one NAME=JSON per line, as $GITHUB_OUTPUT takes it."""
    pairs = [pair.name for pair in pinned().pairs]
    axes = {"environments": environment.names(), "pairs": pairs, "engines": ["spack", "pip"]}
    for name, values in axes.items():
        typer.echo(f"{name}={json.dumps(values)}")


@app.command()
def sites() -> None:
    """List what is due to be checked again in the sites' files; exit status 1 if anything."""
    stale = site_ages.stale(datetime.date.today())
    for each in stale:
        console.note(each)
    raise typer.Exit(1 if stale else 0)


@app.command()
@takes(*SOURCES)
def generate(options: Options, name: str = NameArgument, cache: str = CacheOption) -> None:
    """Write the GitLab pipeline that builds what a binary cache lacks, and tests it."""
    options = dataclasses.replace(options, engine="spack")
    console.note(paths.shorten(gitlab.generate(name, options, cache)))


@app.command()
@takes(*SOURCES, "jobs")
def rebuild(options: Options, name: str = NameArgument) -> None:
    """Build the package of a generated job, and push it to the binary cache."""
    gitlab.rebuild(name, options)


@app.command()
@takes(*SOURCES)
def smoke(options: Options, name: str = NameArgument) -> None:
    """Install an environment from the binary cache, and test it on two ranks."""
    gitlab.smoke(name, dataclasses.replace(options, engine="spack"))
