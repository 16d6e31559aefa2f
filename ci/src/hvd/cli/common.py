"""Arguments and options that several commands have."""

from __future__ import annotations

import enum

import typer

from hvd.core import console
from hvd.model import environment, pins


class EngineName(str, enum.Enum):
    """Spack, pip, or Spack where one can be had, or has built, and pip elsewhere."""

    auto = "auto"
    spack = "spack"
    pip = "pip"


BuiltArgument = typer.Argument(
    environment.DEFAULT, metavar="ENV", help="Built environment; see ./hvd list."
)
BuiltByOption = typer.Option(
    EngineName.auto, "--engine", help="Engine that built it; auto prefers Spack."
)

_SOURCES = "Where Spack comes from"
_BUILD = "How it is built"

EnvironmentArgument = typer.Argument(
    environment.DEFAULT, metavar="ENV", help="Environment; see ./hvd list."
)
EngineOption = typer.Option(
    EngineName.auto, "--engine", help="What builds.", rich_help_panel=_BUILD
)
SpecOption = typer.Option(
    "", "--spec", metavar="SPEC", show_default=False, rich_help_panel=_BUILD,
    help="Build this py-horovod instead of the environment's, in a derived environment.",
)  # fmt: skip
JobsOption = typer.Option(
    0, "--jobs", "-j", min=0, help="Parallel compile jobs.  [default: number of cores]",
    show_default=False, rich_help_panel=_BUILD,
)  # fmt: skip
PythonOption = typer.Option(
    "", "--python", metavar="PYTHON", show_default=False, rich_help_panel=_BUILD,
    help="Use this Python's frameworks (3.6 or later) instead of the pinned ones.",
)  # fmt: skip
FreshOption = typer.Option(
    False, "--fresh", help="Concretize and build again.", rich_help_panel=_BUILD
)
SpackOption = typer.Option(
    "", "--spack", metavar="PATH|URL", envvar="HVD_SPACK", show_default=False,
    rich_help_panel=_SOURCES, help="Spack to use, or git repository to clone it from.",
)  # fmt: skip
PackagesOption = typer.Option(
    "", "--packages", metavar="PATH|URL", envvar="HVD_PACKAGES", show_default=False,
    rich_help_panel=_SOURCES, help="The same, for Spack's builtin packages.",
)  # fmt: skip
WrapperOption = typer.Option(
    "", "--compiler-wrapper", metavar="PATH|URL", envvar="HVD_COMPILER_WRAPPER",
    show_default=False, rich_help_panel=_SOURCES,
    help="The same, for the compiler wrapper, which packages v2026.06.0 and later download.",
)  # fmt: skip
PairOption = typer.Option(
    "", "--pair", metavar="NAME", show_default=False, rich_help_panel=_SOURCES,
    help="Supported pair of Spack and packages: "
    + ", ".join(pair.name for pair in pins.versions().pairs) + ".",
)  # fmt: skip
VerboseOption = typer.Option(False, "--verbose", "-v", help="Show the log file of every step.")


def chosen(name: str, spec: str) -> environment.Environment:
    """The environment called ``name``, or one derived from it for ``spec``."""
    base = environment.load(name)
    if not spec:
        return base
    derived = environment.derive(base, spec)
    console.note(f"{derived.name}: {'; '.join(derived.specs)}")
    return derived
