"""``./hvd doctor``."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import List

import rich.box
import rich.table
import rich.text
import typer

from hvd.cli.common import BuiltArgument, BuiltByOption, EngineName, flag
from hvd.core import console
from hvd.doctor import checks, gather
from hvd.doctor.checks import Finding, State
from hvd.launch.start import callers

_COLOURS = {
    State.ok: "green",
    State.warn: "yellow",
    State.fail: "bold red",
    State.unknown: "cyan",
}


def doctor(
    name: str = BuiltArgument,
    engine: EngineName = BuiltByOption,
    as_json: bool = flag("--json", "Print JSON."),
) -> None:
    """Diagnose a built environment, this shell and this machine.

    Exit status: 1 if a check fails.  What cannot be checked here, such as a GPU on a login node,
    is reported as not known.
    """
    findings = checks.examine(gather.facts(name, engine.value, callers(os.environ)))
    if as_json:
        report = {"environment": name, "checks": [dataclasses.asdict(each) for each in findings]}
        sys.stdout.write(json.dumps(report, indent=1) + "\n")
    else:
        _show(findings)
    if any(each.state is State.fail for each in findings):
        raise typer.Exit(1)


def _show(findings: List[Finding]) -> None:
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("Check", "State", "Finding"):
        table.add_column(title, overflow="fold", no_wrap=title != "Finding")
    for each in findings:
        text = rich.text.Text(each.finding)
        if each.remedy and each.state is not State.ok:
            text.append(f"\nhint: {each.remedy}", style="dim")
        state = rich.text.Text(each.state.value, style=_COLOURS[each.state])
        table.add_row(each.check, state, text)
    console.out.print(table, soft_wrap=False)
