"""``./hvd dev``: what maintainers run."""

from __future__ import annotations

import typer

from hvd.cli import ci, docs, matrix, pipeline

app = typer.Typer(
    name="dev",
    help="What maintainers of this repository run.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.command(name="docs")(docs.docs)
app.command(name="lock")(pipeline.lock)
app.command(name="matrix")(matrix.matrix)
app.add_typer(ci.app, name="ci")
