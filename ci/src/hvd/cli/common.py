"""Arguments and options that several commands have."""

from __future__ import annotations

import enum
import functools
import inspect
from typing import Any, Callable, Dict, Tuple, get_type_hints

import typer

from hvd.core import console
from hvd.core.errors import HvdError
from hvd.core.options import Options, Sources
from hvd.core.run import StageFailed
from hvd.host import machine
from hvd.model import environment, recipe, specs
from hvd.model.environment import HOROVOD, Environment
from hvd.model.versions import pinned


def group(help: str) -> typer.Typer:
    """Define a command that has commands of its own."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode="rich")


class EngineName(str, enum.Enum):
    """The engines; ``auto`` is Spack where there is one, or where it has built, else pip."""

    auto = "auto"
    spack = "spack"
    pip = "pip"


def option(usage: str, help: str, default: Any = "", **more: Any) -> Any:
    """Define an option, whose ``usage`` is such as ``--output -o FILE``; ``more`` is Typer's."""
    words = usage.split()
    names = [word for word in words if word.startswith("-")]
    metavar = " ".join(words[len(names) :]) or ("" if default is False else None)
    shown = bool(default)
    return typer.Option(default, *names, metavar=metavar, help=help, show_default=shown, **more)


def flag(name: str, help: str, **more: Any) -> Any:
    """Define an option without a value; ``more`` is Typer's."""
    return option(name, help, False, **more)


_source = functools.partial(option, rich_help_panel="Where Spack comes from")
_build = functools.partial(option, rich_help_panel="How it is built")


def _name(given: str) -> str:
    """The whole name of an environment that may be given without ``-hvd``."""
    return environment.load(given).name


EnvironmentArgument = typer.Argument(
    environment.DEFAULT, metavar="ENV", help="Environment; see ./hvd list.", callback=_name
)
BuiltArgument = typer.Argument(
    environment.DEFAULT, metavar="ENV", help="Built environment; see ./hvd list.", callback=_name
)
SiteArgument = typer.Argument(
    ..., metavar="ENV", help="Environment of a site; see ./hvd list.", callback=_name
)
BuiltByOption = option("--engine", "Engine that built it; auto prefers Spack.", EngineName.auto)
JsonOption = flag("--json", "Print the result as JSON; progress goes to standard error.")
SpecOption = _build(
    "--spec SPEC", "Build this py-horovod instead of the environment's, in a derived environment."
)
JobsOption = _build("--jobs -j N", "Parallel compile jobs. \\[default: number of cores]", 0, min=0)

#: The options that :func:`takes` adds, by parameter: type and definition.
_OPTIONS: Dict[str, Tuple[type, Any]] = {
    "engine": (EngineName, _build("--engine", "Build engine.", EngineName.auto)),
    "jobs": (int, JobsOption),
    "python": (
        str,
        _build(
            "--python PYTHON",
            "Use this Python's frameworks (3.6 or later) instead of the pinned ones.",
        ),
    ),
    "fresh": (bool, _build("--fresh", "Do again what earlier runs have done.", False)),
    "spack": (
        str,
        _source(
            "--spack PATH|URL",
            "Spack to use, or git repository to clone it from.",
            envvar="HVD_SPACK",
        ),
    ),
    "packages": (
        str,
        _source(
            "--packages PATH|URL", "The same, for Spack's builtin packages.", envvar="HVD_PACKAGES"
        ),
    ),
    "compiler_wrapper": (
        str,
        _source(
            "--compiler-wrapper PATH|URL",
            "The same, for the compiler wrapper, which packages v2026.06.0 and later download.",
            envvar="HVD_COMPILER_WRAPPER",
        ),
    ),
    "pair": (
        str,
        _source(
            "--pair NAME",
            f"Supported pair of Spack and packages: {', '.join(p.name for p in pinned().pairs)}.",
        ),
    ),
    "verbose": (bool, flag("--verbose -v", "Show the log file of every step.")),
}
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

        # what Typer reads: the function's own parameters with their types, and the options
        hints = {**get_type_hints(function), **{name: _OPTIONS[name][0] for name in names}}
        own = inspect.signature(function).parameters.values()
        kind = inspect.Parameter.KEYWORD_ONLY
        added = [inspect.Parameter(name, kind, default=_OPTIONS[name][1]) for name in names]
        parameters = [*(each for each in own if each.name != "options"), *added]
        command.__annotations__ = {each.name: hints[each.name] for each in parameters}
        command.__signature__ = inspect.Signature(
            [each.replace(annotation=hints[each.name]) for each in parameters]
        )
        del command.__wrapped__
        return command

    return decorate


def chosen(name: str, spec: str) -> Environment:
    """Return the environment called ``name``, or one derived from it for ``spec``.

    A spec that the recipe refuses ends the command before anything is written.
    """
    base = environment.load(name)
    if spec:
        environment.require_horovod(spec)
    root = specs.parse(spec, strict=False) if spec else base.root
    # a site's file gives them to every package
    configured = ("cuda_arch", "amdgpu_target") if base.site else ()
    try:
        _, newest = recipe.load(HOROVOD).accept(root, configured)
    except HvdError as error:
        console.error(error)
        raise StageFailed("concretize", error) from error
    if newest:
        console.note(f"{newest.message}\n  This leaves an older Horovod.")
    if not spec:
        return base
    derived = environment.derive(base, spec)
    console.note(f"{derived.name}: {'; '.join(derived.specs)}")
    return derived
