"""``./hvd list`` and ``./hvd spec``."""

from __future__ import annotations

import json
from typing import List

import typer

from hvd.cli.common import flag
from hvd.core import console
from hvd.core.errors import HvdError
from hvd.core.run import StageFailed
from hvd.model import environment, recipe, site, specs


def list_environments(as_json: bool = flag("--json", "Print JSON.")) -> None:
    """List the environments."""
    found, machines, problems = {}, {}, []
    for name in environment.names():
        try:
            each = environment.load(name)
            machines[name] = _machine(each.site)
            found[name] = each.specs
        except HvdError as error:
            problems.append(error)
    if as_json:
        print(json.dumps(found, indent=1))
    for name in [] if as_json else found:
        print(f"{name:<22}{machines[name]:<36}{found[name][0]}")
    for error in problems:
        console.error(error)
    raise typer.Exit(1 if problems else 0)


def _machine(name: str) -> str:
    """The centre and the machine of the site called ``name``; empty for this machine."""
    if not name:
        return "this machine"
    found = site.load(name)
    retired = ", retired" if found.status.state == "retired" else ""
    return f"{found.center} {found.name}{retired}"


def check_spec(
    words: List[str] = typer.Argument(..., metavar="SPEC", help="A spec of py-horovod."),
) -> None:
    """Say in a second whether the recipe accepts a spec; solve and build nothing.

    For example: ./hvd spec py-horovod@0.27.0 frameworks=tensorflow ^py-tensorflow@2.14

    Exit status: 11 if the recipe refuses it.
    """
    text = " ".join(words)
    environment.require_horovod(text)
    spec, horovod = specs.parse(text, strict=False), recipe.load(environment.HOROVOD)
    try:
        accepted, newer = horovod.accept(spec)
    except HvdError as error:
        console.error(error)
        raise StageFailed("concretize", error) from error
    if newer:
        console.note(newer.message)
    print(f"accepted: {accepted}")
