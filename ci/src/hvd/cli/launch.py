"""``./hvd launch``."""

import dataclasses
import functools
import inspect
import os
import sys
from typing import Any, Dict, List, Optional

import typer

from hvd.cli.common import SiteArgument, option
from hvd.core import console
from hvd.core.errors import HvdError
from hvd.launch import batch, hosts, methods, request, start
from hvd.model import built

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_printed = functools.partial(option, rich_help_panel="Output", default=False)


def launch(
    name: str = SiteArgument,
    program: Optional[List[str]] = typer.Argument(None, metavar="PROGRAM", help="Program."),
    partition: str = option(
        "--partition NAME", "Another of the site's partitions.", rich_help_panel=request.RANKS
    ),
    whole_script: bool = _printed("--batch", "Print the whole batch script."),
    ask: bool = _printed("--ask", "Print an srun that also allocates the nodes."),
    allocate: bool = _printed("--allocate", "Print the command that allocates nodes to work on."),
    run: bool = _printed("--run", "Run the program; only inside a job."),
    **options: Any,
) -> None:
    """Print the command that starts a program on many ranks, or run it.

    For example: ./hvd launch perlmutter-hvd --nodes 2 -- python train.py
    """
    if [whole_script, ask, allocate, run].count(True) > 1:
        raise HvdError("--batch, --ask, --allocate and --run exclude each other", "choose one")
    if not program and not allocate:
        raise HvdError("no program to start", "put it behind --, for example: -- python train.py")
    given = {key: value for key, value in options.items() if value}
    if "hosts" in given:
        given["hosts"] = tuple(hosts.named(given["hosts"]))
    if "variables" in given:
        given["variables"] = _variables(given["variables"])
    asked = request.make(name, partition=partition, program=tuple(program or ()), **given)
    job = hosts.of_job(asked.site.scheduler, asked.partition, os.environ)
    asked = dataclasses.replace(asked, job=None if job is None else tuple(job))
    request.check(asked)
    if run:
        start.run(asked, os.environ)  # does not return
    if allocate:
        text = batch.allocation(asked) + "\n"
    elif whole_script:
        text = batch.script(asked)
        console.aside(f"to submit it, write it to a file: {asked.scheduler.submit} FILE")
        there = any(built.file(name, engine).is_file() for engine in built.ENGINES)
        if not (there or asked.image or asked.setup):
            console.aside(f"{name} has not been built here: ./hvd build {name}")
    else:
        text = (batch.srun_allocate(asked) if ask else methods.quoted(asked)) + "\n"
        needed = {**methods.variables(asked), **asked.fabric}
        if needed and "forwarded" not in asked.settings.values:
            console.aside("set first:")
            for line in batch.exports(needed):
                console.aside(line)
        if asked.job is None and asked.site.scheduler != "none" and not ask:
            console.aside("run this inside a job; --allocate prints how to get one")
    if (allocate or whole_script or ask) and asked.partition.account.needed and not asked.account:
        console.aside(f"a job on {asked.site.name} has to name an account: --account NAME")
    sys.stdout.write(text)


def _variables(entries: List[str]) -> Dict[str, str]:
    for entry in entries:
        if "=" not in entry:
            raise HvdError(f"--env: '{entry}' gives no value", "--env NAME=VALUE")
    return dict(entry.split("=", 1) for entry in entries)


def _parameter(field: dataclasses.Field) -> inspect.Parameter:
    """Return a field of a request as Typer reads an option."""
    usage, help, panel = (field.metadata[key] for key in ("usage", "help", "panel"))
    kind: Any = type(field.default)
    if "repeatable" in help:
        kind, made = List[str], option(usage, help, [], rich_help_panel=panel)
    elif kind is int:
        kind, made = Optional[int], option(usage, help, None, min=1, rich_help_panel=panel)
    elif kind is bool:
        made = option(usage, help, False, rich_help_panel=panel)
    else:
        kind, made = str, option(usage, help, rich_help_panel=panel)
    return inspect.Parameter(field.name, _KEYWORD, default=made, annotation=kind)


_own = [each for each in inspect.signature(launch).parameters.values() if each.name != "options"]
_all = [*_own, *map(_parameter, request.options())]
launch.__signature__ = inspect.Signature(_all)
launch.__annotations__ = {each.name: each.annotation for each in _all}
