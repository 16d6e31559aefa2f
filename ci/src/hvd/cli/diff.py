"""``./hvd diff``."""

from __future__ import annotations

import sys
from typing import List

import rich.markup
import rich.table
import typer

from hvd.cli.common import flag
from hvd.core import console
from hvd.report import text
from hvd.solve import difference, sides
from hvd.solve.difference import Difference

_COLOURS = {"added": "green", "removed": "red", "hash only": "dim"}
_WHAT = "An environment, a spack.lock, a dag.json, or REVISION:PATH of one."


def diff(
    before: str = typer.Argument(..., metavar="A", help=_WHAT),
    after: str = typer.Argument(..., metavar="B", help="The newer one."),
    markdown: bool = flag("--markdown", "Print Markdown, for a merge request."),
) -> None:
    """Show what changed between two solutions: packages, versions, variants, compilers, hashes.

    For example: ./hvd diff main:environments/perlmutter-hvd perlmutter-hvd

    Exit status: 0 equal, 1 different, 2 error.
    """
    old, new = sides.load(before), sides.load(after)
    changes = difference.compare(old, new)
    if markdown:
        sys.stdout.write(_markdown(old.label, new.label, changes))
    elif changes:
        console.out.print(_table(old.label, new.label, changes))
    else:
        console.note(f"{old.label} and {new.label} have the same packages")
    if old.whole != new.whole:
        console.aside("compared as far as a dag.json has packages: no hashes and compilers")
    raise typer.Exit(1 if changes else 0)


def _table(before: str, after: str, changes: List[Difference]) -> rich.table.Table:
    table = console.table("Package", "Change", before, after)
    for change in changes:
        colour = _COLOURS.get(change.kind, "yellow")
        cells = [rich.markup.escape(each) for each in (change.before, change.after)]
        table.add_row(change.package, f"[{colour}]{change.kind}[/]", *cells)
    return table


def _markdown(before: str, after: str, changes: List[Difference]) -> str:
    if not changes:
        return f"{text.escape(before)} and {text.escape(after)} have the same packages.\n"
    packages = len({change.package for change in changes})
    rows = [(each.package, each.kind, each.before, each.after) for each in changes]
    return "\n".join(
        [
            f"**{text.plural(packages, 'package')} changed**",
            "",
            *text.table(["Package", "Change", before, after], rows),
        ]
    )
