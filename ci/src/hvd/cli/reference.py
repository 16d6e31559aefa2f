"""The page of commands and exit statuses."""

from __future__ import annotations

import pathlib
from typing import Any, Iterator, List, Tuple

import typer

from hvd.cli import main
from hvd.cli.commands import PANELS
from hvd.core import paths
from hvd.core.run import EXIT_STATUS
from hvd.docs import pages
from hvd.report.text import render

PAGE = paths.ROOT / "docs" / "commands.md"


def write(check: bool) -> List[pathlib.Path]:
    """Write the page of commands; with ``check``, refuse a stale one."""
    commands = typer.main.get_command(main.application([])).commands
    text = render(
        "docs/commands.md.j2",
        panels={
            title: [each for name in panel for each in _leaves(name, commands[name])]
            for title, panel in PANELS.items()
        },
        options=_options,
        usage=main.USAGE,
        interrupted=main.INTERRUPTED,
        stages=EXIT_STATUS,
    )
    return pages.rewrite(PAGE, "", text, check)


def _leaves(name: str, command: Any) -> Iterator[Tuple[str, Any]]:
    """The command, or those below it, with the words that call them."""
    below = getattr(command, "commands", {})
    for word, each in below.items():
        yield from _leaves(f"{name} {word}", each)
    if not below:
        yield name, command


def _options(command: Any) -> List[str]:
    """The long names of its options."""
    return [each.opts[0] for each in command.params if each.opts[0].startswith("--")]
