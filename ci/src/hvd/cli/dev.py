"""``./hvd dev``: what maintainers run."""

from __future__ import annotations

from hvd.cli import ci, docs, matrix, pipeline
from hvd.cli.common import group

app = group("What maintainers of this repository run.")
app.command(name="docs")(docs.docs)
app.command(name="lock")(pipeline.lock)
app.command(name="matrix")(matrix.matrix)
app.add_typer(ci.app, name="ci")
