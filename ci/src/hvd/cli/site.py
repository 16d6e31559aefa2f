"""``./hvd site``."""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import pathlib
from typing import Iterator, List, Tuple

import rich.box
import rich.console
import rich.table
import rich.text
import typer

from hvd.build.pipeline import Options
from hvd.cli.common import flag, option, takes
from hvd.core import console, lock, paths
from hvd.core.files import write_atomically
from hvd.core.steps import Step
from hvd.launch.start import callers
from hvd.model import site
from hvd.solve import location
from hvd.solve.spack import Spack
from hvd.survey import check as checks
from hvd.survey import new
from hvd.survey.check import Finding, State
from hvd.survey.record import Record

app = typer.Typer(
    help="Describe a machine, and compare it with its description.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COLOURS = {State.same: "green", State.unknown: "cyan", State.moved: "red", State.gone: "bold red"}
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
    wanted = new.Wanted(name, center, tuple(module), python, partition, target, gpu)
    new.refuse(name, paths.environments()[0])
    with _spack(options, f"{name}-new") as (spack, log):
        made = new.make(wanted, Record(callers(os.environ)), spack, log)
    for path in made:
        console.note(paths.shorten(path))
    console.note(f"next: read site.yaml, then ./hvd lock {name}-hvd")


@app.command(name="check")
@takes("spack", "packages", "pair")
def check(
    options: Options,
    name: str = NameArgument,
    write: bool = flag("--write", "Write all of it to NAME-DATE.txt, to attach to an issue."),
) -> None:
    """Compare a site's files with this machine: queues, modules, prefixes and versions.

    Exit status: 1 if something has moved or is gone. Nothing of the site is edited.
    """
    machine = site.load(name)
    record = Record(callers(os.environ))
    with _spack(options, f"{name}-check") as (spack, log):
        findings = checks.examine(machine, record, spack, log)
    console.out.print(_table(findings), soft_wrap=False)
    if write:
        text = io.StringIO()
        rich.console.Console(file=text, width=120).print(_table(findings))
        file = pathlib.Path(f"{name}-{datetime.date.today()}.txt").absolute()
        write_atomically(file, f"{text.getvalue()}\n{record.text()}".encode())
        console.note(f"to attach to an issue or a merge request: {file}")
    if any(each.state in (State.moved, State.gone) for each in findings):
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


def _table(findings: List[Finding]) -> rich.table.Table:
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("Fact", "State", "Declared", "Found"):
        table.add_column(title, overflow="fold", no_wrap=title in ("Fact", "State"))
    for each in findings:
        state = rich.text.Text(each.state.value, style=_COLOURS[each.state])
        table.add_row(
            rich.text.Text(each.fact), state, *map(rich.text.Text, (each.declared, each.found))
        )
    return table
