"""Arguments and options that several commands have."""

from __future__ import annotations

import enum
import functools
import inspect
from typing import Any, Callable, Dict, Tuple, get_type_hints

import typer

from hvd.build.pipeline import Options
from hvd.core import console
from hvd.host import machine
from hvd.model import environment
from hvd.model.versions import pinned
from hvd.solve.spack import Sources


class EngineName(str, enum.Enum):
    """The engines; ``auto`` is Spack where there is one, or where it has built, else pip."""

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
SpecOption = typer.Option(
    "", "--spec", metavar="SPEC", show_default=False, rich_help_panel=_BUILD,
    help="Build this py-horovod instead of the environment's, in a derived environment.",
)  # fmt: skip
JobsOption = typer.Option(
    0, "--jobs", "-j", min=0, help="Parallel compile jobs. \\[default: number of cores]",
    show_default=False, rich_help_panel=_BUILD,
)  # fmt: skip

#: The options that :func:`takes` adds, by parameter: type and definition.
_OPTIONS: Dict[str, Tuple[type, Any]] = {
    "engine": (
        EngineName,
        typer.Option(EngineName.auto, "--engine", help="Build engine.", rich_help_panel=_BUILD),
    ),
    "jobs": (int, JobsOption),
    "python": (
        str,
        typer.Option(
            "", "--python", metavar="PYTHON", show_default=False, rich_help_panel=_BUILD,
            help="Use this Python's frameworks (3.6 or later) instead of the pinned ones.",
        ),
    ),
    "fresh": (
        bool,
        typer.Option(
            False, "--fresh", help="Concretize and build again.", rich_help_panel=_BUILD
        ),
    ),
    "spack": (
        str,
        typer.Option(
            "", "--spack", metavar="PATH|URL", envvar="HVD_SPACK", show_default=False,
            rich_help_panel=_SOURCES, help="Spack to use, or git repository to clone it from.",
        ),
    ),
    "packages": (
        str,
        typer.Option(
            "", "--packages", metavar="PATH|URL", envvar="HVD_PACKAGES", show_default=False,
            rich_help_panel=_SOURCES, help="The same, for Spack's builtin packages.",
        ),
    ),
    "compiler_wrapper": (
        str,
        typer.Option(
            "", "--compiler-wrapper", metavar="PATH|URL", envvar="HVD_COMPILER_WRAPPER",
            show_default=False, rich_help_panel=_SOURCES,
            help="The same, for the compiler wrapper, which packages v2026.06.0 and later"
            " download.",
        ),
    ),
    "pair": (
        str,
        typer.Option(
            "", "--pair", metavar="NAME", show_default=False, rich_help_panel=_SOURCES,
            help="Supported pair of Spack and packages: "
            + ", ".join(pair.name for pair in pinned().pairs) + ".",
        ),
    ),
    "verbose": (
        bool,
        typer.Option(False, "--verbose", "-v", help="Show the log file of every step."),
    ),
}  # fmt: skip
#: The options that say where Spack comes from.
SOURCES = ("spack", "packages", "compiler_wrapper", "pair")
#: All of them.
ALL = tuple(_OPTIONS)


def takes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options called ``names`` to a command, which gets them as one ``options``.

    Options that are not named have their defaults in :class:`Options`.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            sources = Sources(**{name: given.pop(name) for name in SOURCES if name in given})
            given["engine"] = given.get("engine", EngineName.auto).value
            given["jobs"] = given.get("jobs") or machine.cores()
            function(**values, options=Options(sources=sources, **given))

        own = inspect.signature(function).parameters.values()
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_OPTIONS[name][1])
            for name in names
        ]
        parameters = [*(each for each in own if each.name != "options"), *added]
        hints = {**get_type_hints(function), **{name: _OPTIONS[name][0] for name in names}}
        command.__annotations__ = {each.name: hints[each.name] for each in parameters}
        command.__signature__ = inspect.Signature(
            [each.replace(annotation=hints[each.name]) for each in parameters]
        )
        del command.__wrapped__
        return command

    return decorate


def chosen(name: str, spec: str) -> environment.Environment:
    """Return the environment called ``name``, or one derived from it for ``spec``."""
    base = environment.load(name)
    if not spec:
        return base
    derived = environment.derive(base, spec)
    console.note(f"{derived.name}: {'; '.join(derived.specs)}")
    return derived
