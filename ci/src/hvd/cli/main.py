"""The commands of ``./hvd``."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import List, Optional

import typer

from hvd.bench import page as performance_page
from hvd.build import pipeline, solve_all
from hvd.build.pipeline import Options
from hvd.cli import (
    activate,
    bench,
    bundle,
    cache,
    check,
    ci,
    container,
    debian,
    diff,
    doctor,
    kernel,
    launch,
    matrix,
    publish,
    testing,
    timeline,
)
from hvd.cli.common import (
    EngineName,
    EngineOption,
    EnvironmentArgument,
    FreshOption,
    JobsOption,
    PackagesOption,
    PairOption,
    PythonOption,
    SpackOption,
    SpecOption,
    VerboseOption,
    WrapperOption,
    chosen,
)
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.core.run import EXIT_STATUS, StageFailed
from hvd.docs import site_page, sphinx
from hvd.host import externals, machine
from hvd.matrix import definition, page
from hvd.model import environment, pins
from hvd.solve.spack import Sources

#: The exit status for wrong usage and for errors outside a stage, as in most tools.
USAGE = 2
DEFAULT = environment.DEFAULT

app = typer.Typer(
    name="./hvd",
    help="Horovod on supercomputers: set up, concretize, build and test an environment.\n\n"
    "[bold]./hvd run[/bold] does all of it for this machine.",
    epilog="Exit status: 0 passed, 2 wrong usage, "
    + ", ".join(f"{status} {stage} failed" for stage, status in EXIT_STATUS.items())
    + ".",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _command(stage: str, summary: str):
    """Add the command for the pipeline up to ``stage``."""

    def command(
        name: str = EnvironmentArgument,
        spec: str = SpecOption,
        engine: EngineName = EngineOption,
        jobs: int = JobsOption,
        python: str = PythonOption,
        fresh: bool = FreshOption,
        spack: str = SpackOption,
        packages: str = PackagesOption,
        compiler_wrapper: str = WrapperOption,
        pair: str = PairOption,
        verbose: bool = VerboseOption,
    ) -> None:
        options = Options(
            engine=engine.value,
            sources=Sources(spack, packages, compiler_wrapper, pair),
            python=python,
            jobs=jobs or machine.cores(),
            fresh=fresh,
            verbose=verbose,
        )
        pipeline.run(chosen(name, spec), options, last=stage)
        if stage == "setup":
            console.note(f"to use it: . {paths.shorten(paths.STATE / 'setup-env.sh')}")

    command.__doc__ = summary
    app.command(name="run" if stage == "report" else stage)(command)


_command("report", "Set up, concretize, build, smoke-test and report: the main job.")
_command("setup", "Set up Spack (or pip): configuration, compilers, externals.")
_command("build", "Set up, concretize and build.")
_command("smoke", "Set up, concretize, build, and run Horovod on two ranks.")


@app.command(name="concretize")
def concretize(
    names: List[str] = typer.Argument(
        [DEFAULT], metavar="[ENV]...", help="Environments below environments/; see ./hvd list."
    ),
    every: bool = typer.Option(
        False, "--all", help="All environments, several at a time, with Spack."
    ),
    spec: str = SpecOption,
    engine: EngineName = EngineOption,
    jobs: int = JobsOption,
    python: str = PythonOption,
    fresh: bool = FreshOption,
    spack: str = SpackOption,
    packages: str = PackagesOption,
    compiler_wrapper: str = WrapperOption,
    pair: str = PairOption,
    verbose: bool = VerboseOption,
) -> None:
    """Set up and concretize."""
    options = Options(
        engine=engine.value,
        sources=Sources(spack, packages, compiler_wrapper, pair),
        python=python,
        jobs=jobs or machine.cores(),
        fresh=fresh,
        verbose=verbose,
    )
    if not every and len(names) == 1:
        pipeline.run(chosen(names[0], spec), options, last="concretize")
    elif spec or engine is EngineName.pip:
        raise HvdError("--spec and pip are for one environment", "name one, or leave them out")
    else:
        solve_all.run(environment.names() if every else names, options)


@app.command(name="lock")
def lock(
    names: Optional[List[str]] = typer.Argument(
        None, metavar="[ENV]...", help="Site environments.  [default: all]"
    ),
    check: bool = typer.Option(
        False, "--check", help="Fail if the solution changed; write nothing."
    ),
    spack: str = SpackOption,
    packages: str = PackagesOption,
    verbose: bool = VerboseOption,
) -> None:
    """Concretize a site's environment with the default pair and write the solution to dag.md."""
    pair = pins.versions().pairs[0].name
    options = Options(sources=Sources(spack, packages, pair=pair), verbose=verbose)
    solve_all.keep(names or environment.of_sites(), options, check)


@app.command(name="docs")
def docs(
    check: bool = typer.Option(False, "--check", help="Write nothing; fail if one is stale."),
    as_site: bool = typer.Option(
        False, "--site", help="Build the documentation site; needs Python 3.11."
    ),
) -> None:
    """Regenerate tables and pages: README, sites, support matrix, performance."""
    # the pages are about this checkout's sites
    os.environ.pop("HVD_SITES", None)
    if as_site:
        console.note(paths.shorten(sphinx.build()))
        return
    written = site_page.write(check) + page.write(definition.matrix(), check)
    for path in written + performance_page.write(check):
        console.note(paths.shorten(path))


@app.command(name="list")
def list_environments() -> None:
    """List the environments."""
    for name in environment.names():
        console.out.print(f"{name:<24}{'; '.join(environment.load(name).specs)}")


app.command(name="activate")(activate.activate)
app.command(name="bench")(bench.bench)
app.command(name="bundle")(bundle.bundle)
app.add_typer(cache.app, name="cache")
app.command(name="check", context_settings={"allow_extra_args": True})(check.check)
app.add_typer(ci.app, name="ci")
app.command(name="container")(container.container)
app.command(name="debian", context_settings={"allow_extra_args": True})(debian.run)
app.command(name="diff")(diff.diff)
app.command(name="doctor")(doctor.doctor)
app.command(name="kernel")(kernel.install_kernel)
app.command(name="launch")(launch.launch)
app.command(name="matrix")(matrix.matrix)
app.command(name="publish")(publish.publish)
app.command(name="timeline")(timeline.timeline)


@app.command(name="externals")
def write_externals(
    name: str = typer.Argument(
        "", metavar="ENV", help="Site environment whose Python externals to replace."
    ),
    python: str = typer.Option(..., "--python", metavar="PYTHON", help="Python to inspect."),
    scope: Optional[pathlib.Path] = typer.Option(
        None, "--scope", metavar="FILE", help="Output file.  [default: standard output]"
    ),
    arch: str = typer.Option(
        "",
        "--arch",
        metavar="'os=OS target=TARGET'",
        help="Architecture of every external, for a site's environment.",
    ),  # fmt: skip
) -> None:
    """Write a packages.yaml with a Python's frameworks as externals.

    PyTorch, TensorFlow, NumPy, cffi, mpi4py, the MPI in PATH or beside it, and Python itself,
    with their variants, GPU architectures and dependencies.
    """
    if name and (scope or arch):
        raise HvdError("ENV says which file and which architecture", "leave the others out")
    found = externals.ask(python)
    if name:
        section = externals.for_site(found, environment.load(name))
        scope = environment.load(name).externals
    else:
        section = externals.packages(found, externals.find_mpi(found), arch)
    if scope is None:
        sys.stdout.write(externals.dump(section))
    else:
        externals.write(section, scope, python)
        console.note(f"{paths.shorten(scope)}: {', '.join(key.rstrip(':') for key in section)}")


@app.command(
    name="test", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def test(
    context: typer.Context,
    require: str = typer.Option(
        "",
        "--require",
        metavar="TIER[,TIER]",
        help=f"Tiers that must run, or the command fails: {', '.join(testing.TIERS)}.",
    ),  # fmt: skip
) -> None:
    """Run the tests that this machine can run.

    Further arguments go to pytest: ./hvd test -k smoke
    """
    raise typer.Exit(testing.run(require, context.args))


def main(arguments: Optional[List[str]] = None) -> None:
    """Run a command; end the process with its status."""
    try:
        app(args=arguments, prog_name="./hvd")
    except StageFailed as failure:
        sys.exit(failure.status)
    except HvdError as error:
        console.error(error, getattr(error, "tail", ""))
        sys.exit(USAGE)
    except KeyboardInterrupt:
        console.err.print("interrupted")
        sys.exit(130)
