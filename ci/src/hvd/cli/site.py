"""``./hvd site``."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Iterator, List, Tuple

import rich.markup
import rich.table
import typer

from hvd.cli.common import group, option, takes
from hvd.core import console, lock, paths
from hvd.core.options import Options
from hvd.core.steps import Step
from hvd.launch.start import callers
from hvd.model import site
from hvd.solve import location
from hvd.solve.spack import Spack
from hvd.survey import check as checks
from hvd.survey import new
from hvd.survey.machine import Record

app = group("Describe a machine, and compare it with its description.")
NameArgument = typer.Argument(..., metavar="NAME", help="Name of the site.")


@app.command(name="new")
@takes("spack", "packages", "pair")
def make(
    options: Options,
    name: str = NameArgument,
    center: str = option("--center TEXT", "Who runs the machine.", ...),
    module: List[str] = option(
        "--module MODULE", "A module of the software to use, in the order to load; repeatable.", []
    ),
    python: str = option("--python PYTHON", "Python with the framework.", "python3"),
    partition: str = option("--partition NAME", "Queue of the environment, if not the default."),
    target: str = option("--target NAME", "Processor of its nodes, if not that of this one."),
    gpu: str = option("--gpu VARIANT", "Its GPUs, if their model is not known: cuda_arch=80."),
) -> None:
    """Write a site and its environment NAME-hvd from what this login node has.

    For example: ./hvd site new moon --center 'Tycho Computing Centre' --module openmpi/4.1
    --module pytorch/2.4

    Below HVD_SITES if that is set, else below environments. Every command's output is kept with
    the site, in sources. Nothing is overwritten.
    """
    new.refuse(name, paths.environments()[0])
    more = {"python": python, "partition": partition, "target": target, "gpu": gpu}
    with _spack(options, f"{name}-new") as (spack, log):
        made = new.make(
            name, center, Record(callers(os.environ)), spack, log, modules=module, **more
        )
    for path in made:
        console.note(paths.shorten(path))
    console.note(f"next: fill in each TODO of site.yaml, then ./hvd dev lock {name}-hvd")


@app.command(name="check")
@takes("spack", "packages", "pair")
def check(options: Options, name: str = NameArgument) -> None:
    """Compare a site's files with this machine: queues, modules, prefixes and versions.

    Exit status: 1 if something has moved or is gone. Nothing of the site is edited.
    """
    machine = site.load(name)
    with _spack(options, f"{name}-check") as (spack, log):
        findings = checks.examine(machine, Record(callers(os.environ)), spack, log)
    table = rich.table.Table(box=None, pad_edge=False, header_style="bold")
    for title in ("Fact", "State", "Declared", "Found"):
        table.add_column(title, overflow="fold")
    for each in findings:
        table.add_row(*map(rich.markup.escape, each))
    console.out.print(table)
    if any(state in (checks.MOVED, checks.GONE) for _, state, *_ in findings):
        raise typer.Exit(1)


@contextlib.contextmanager
def _spack(options: Options, name: str) -> Iterator[Tuple[Spack, pathlib.Path]]:
    """Give a Spack to look at the machine with, and a log, and show that this takes a while."""
    log = paths.state() / "logs" / "site" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    step = Step("this machine", log=log)
    with lock.exclusive(paths.state() / "lock"), console.step(step):
        spack = location.locate(options.sources, log)
        spack.configure(options.jobs)
        yield spack, log
