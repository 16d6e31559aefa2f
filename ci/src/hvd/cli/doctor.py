"""``./hvd doctor``."""

from __future__ import annotations

import dataclasses
import json
import os
import sys

import typer

from hvd.cli.common import BuiltArgument, BuiltByOption, EngineName, flag
from hvd.core import check, console
from hvd.core.check import State
from hvd.doctor import checks
from hvd.launch.start import callers


def doctor(
    name: str = BuiltArgument,
    engine: EngineName = BuiltByOption,
    as_json: bool = flag("--json", "Print JSON."),
) -> None:
    """Diagnose a built environment, this shell and this machine.

    Exit status: 1 if a check fails.  What cannot be checked here, such as a GPU on a login node,
    is reported as not known.
    """
    found = checks.examine(name, engine.value, callers(os.environ))
    if as_json:
        report = {"environment": name, "checks": [dataclasses.asdict(each) for each in found]}
        sys.stdout.write(json.dumps(report, indent=1) + "\n")
    else:
        console.out.print(check.show(found))
    if any(each.state is State.fail for each in found):
        raise typer.Exit(1)
