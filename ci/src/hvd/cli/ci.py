"""``./hvd ci``: the commands that pipelines call."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import List

import typer

from hvd.build.pipeline import Options
from hvd.ci.gitlab import generate as generating
from hvd.ci.gitlab import jobs
from hvd.cli.common import JobsOption, PackagesOption, PairOption, SpackOption, WrapperOption
from hvd.core import console, paths
from hvd.host import machine
from hvd.model import environment, pins
from hvd.solve.spack import Sources

app = typer.Typer(
    help="Commands for pipelines; see docs/pipelines.md.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

NamesArgument = typer.Argument(
    [environment.DEFAULT], metavar="[ENV]...", help="Environments; see ./hvd list."
)
NameArgument = typer.Argument(..., metavar="ENV", help="Environment of the job.")
CacheOption = typer.Option(
    "", "--cache", metavar="URL|PATH", envvar="HVD_CI_CACHE", show_default=False,
    help="Binary cache to look in and push to; where not given, one below .hvd/ci.",
)  # fmt: skip
OutputOption = typer.Option(
    paths.STATE / "ci" / "pipeline.yml", "--output", "-o", metavar="FILE", show_default=False,
    help="The child pipeline; where not given, .hvd/ci/pipeline.yml.",
)  # fmt: skip


@app.command(name="matrix")
def print_matrix() -> None:
    """Print the job matrix, one NAME=JSON per line, as $GITHUB_OUTPUT takes it."""
    axes = {
        "environments": environment.names(),
        "pairs": [pair.name for pair in pins.versions().pairs],
        "engines": ["spack", "pip"],
    }
    for name, values in axes.items():
        sys.stdout.write(f"{name}={json.dumps(values)}\n")


@app.command()
def generate(
    names: List[str] = NamesArgument,
    cache: str = CacheOption,
    output: pathlib.Path = OutputOption,
    spack: str = SpackOption,
    packages: str = PackagesOption,
    compiler_wrapper: str = WrapperOption,
    pair: str = PairOption,
) -> None:
    """Write the GitLab pipeline that builds what a binary cache lacks, and tests it."""
    options = _options(spack, packages, compiler_wrapper, pair)
    count = generating.generate(names, options, cache, output)
    console.note(f"{paths.shorten(output)}: {count} to build, {len(names)} to test")


@app.command()
def rebuild(
    name: str = NameArgument,
    spack: str = SpackOption,
    packages: str = PackagesOption,
    compiler_wrapper: str = WrapperOption,
    pair: str = PairOption,
    cores: int = JobsOption,
) -> None:
    """Build the package of a generated job, and push it to the binary cache."""
    jobs.rebuild(name, _options(spack, packages, compiler_wrapper, pair, cores))


@app.command()
def smoke(
    name: str = NameArgument,
    spack: str = SpackOption,
    packages: str = PackagesOption,
    compiler_wrapper: str = WrapperOption,
    pair: str = PairOption,
) -> None:
    """Install an environment from the binary cache, and test it on two ranks."""
    jobs.smoke(name, _options(spack, packages, compiler_wrapper, pair))


def _options(spack: str, packages: str, wrapper: str, pair: str, cores: int = 0) -> Options:
    sources = Sources(spack, packages, wrapper, pair)
    return Options(engine="spack", sources=sources, jobs=cores or machine.cores())
