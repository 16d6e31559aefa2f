"""Arguments and options that several commands have."""

from __future__ import annotations

import enum

import typer

from hvd import environment


class EngineName(str, enum.Enum):
    """Spack, pip, or Spack where one can be had, or has built, and pip elsewhere."""

    auto = "auto"
    spack = "spack"
    pip = "pip"


BuiltArgument = typer.Argument(
    environment.DEFAULT, metavar="ENV", help="Environment that was built; see ./hvd list."
)
BuiltByOption = typer.Option(EngineName.auto, "--engine", help="Whose build; auto: Spack's first.")
