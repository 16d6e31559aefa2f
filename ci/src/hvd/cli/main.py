"""``./hvd``: options before the command, and how the process ends."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import List, Optional

import typer
import yaml

from hvd.cli.commands import COMMANDS, overview
from hvd.core import console, paths
from hvd.core.errors import HvdError, nearest
from hvd.core.run import StageFailed
from hvd.fetch import clone

#: The exit status for wrong usage and for errors outside a stage, as in most tools.
USAGE = 2
#: The exit status after Ctrl-C, as a shell has it.
INTERRUPTED = 130
#: The variable by which a shell's completion script asks Typer.
_COMPLETION = "_./HVD_COMPLETE"
_HELP = {"help_option_names": ["-h", "--help"]}


def application(arguments: List[str]) -> typer.Typer:
    """The command that ``arguments`` name, or all of them; each import takes a while."""
    app = typer.Typer(
        name="./hvd",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings=_HELP,
    )
    app.callback()(_options)
    first = next((word for word in arguments if word not in ("-q", "--quiet")), "")
    for name in COMMANDS if first.startswith("-") or not first else [first]:
        if name not in COMMANDS:
            raise HvdError(f"no command is called '{name}'", nearest(name, COMMANDS))
        module, _, attribute = COMMANDS[name].place.partition(":")
        found = getattr(importlib.import_module(f"hvd.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
            continue
        more = COMMANDS[name].passes_on
        settings = {**_HELP, "allow_extra_args": more, "ignore_unknown_options": more}
        app.command(name=name, context_settings=settings)(found)
    return app


def _options(
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print errors and results only."),
) -> None:
    console.set_quiet(quiet)


def main(arguments: Optional[List[str]] = None) -> None:
    """Run a command, and end the process with its status.

    SIGTERM and SIGHUP end a command as Ctrl-C does, with its children and a report.
    """
    ended: List[int] = []

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        ended.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup has the second one ignored
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
    status = _call(arguments)
    sys.exit(128 + ended[0] if ended else status)


def _call(arguments: Optional[List[str]]) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if words in ([], ["-h"], ["--help"]) and _COMPLETION not in os.environ:
            print(overview(), end="")
        elif words == ["--version"]:
            cited = yaml.safe_load((paths.ROOT / "CITATION.cff").read_text())
            print(f"hvd {cited['version']} {clone.commit(paths.ROOT)[:12]}".strip())
        else:
            # ./hvd site makes it
            if words[:1] != ["site"]:
                paths.require_environments()
            application(words)(args=words, prog_name="./hvd")
    except StageFailed as failure:
        return failure.status
    except HvdError as error:
        console.error(error)
        return USAGE
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        console.error(HvdError(f"{named}{error.strerror or error}", "check its path and the disk"))
        return USAGE
    except KeyboardInterrupt:
        console.err.print("interrupted")
        return INTERRUPTED
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
