"""``./hvd dev``: what maintainers run, such as ``./hvd dev docs``."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from typing import Any, Iterator, List, Tuple

import typer

from hvd.cli import ci, main, matrix, pipeline
from hvd.cli.commands import PANELS
from hvd.cli.common import flag, group
from hvd.core import console, paths, process
from hvd.core.errors import HvdError
from hvd.core.run import EXIT_STATUS
from hvd.docs import pages, site_page
from hvd.matrix import cells, page
from hvd.report.text import render

#: The page of commands and exit statuses.
REFERENCE = paths.ROOT / "docs" / "commands.md"

app = group("What maintainers of this repository run.")


@app.command()
def docs(
    check: bool = flag("--check", "Write nothing; fail if one is stale."),
    as_site: bool = flag("--site", "Build the documentation site; needs Python 3.11."),
) -> None:
    """Regenerate the README's table, and the pages that come from code, files and results."""
    # the pages are about this checkout's sites
    os.environ.pop("HVD_SITES", None)
    if as_site:
        _build_site()
        return
    written = site_page.write(check) + pages.write_seeds(check)
    written += write_reference(check) + page.write(cells.matrix(), check)
    for path in written:
        console.note(paths.shorten(path))


app.command(name="lock")(pipeline.lock)
app.command(name="matrix")(matrix.matrix)
app.add_typer(ci.app, name="ci")


def _build_site() -> None:
    if sys.version_info < (3, 11):
        raise HvdError(
            f"Sphinx's current releases need Python 3.11, and .venv has {sys.version.split()[0]}",
            "put a newer python3 first on PATH, and remove .venv",
        )
    target, log = paths.state() / "site", paths.state() / "logs" / "docs.log"
    # a warning, such as a link that leads nowhere, is an error
    words = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-E", "-q"]
    shutil.rmtree(target, ignore_errors=True)
    console.note("Sphinx builds the site: half a minute")
    process.run([*words, "-c", paths.ROOT / "docs", paths.ROOT, target], log=log, timeout=600)
    console.note(paths.shorten(target / "index.html"))


def write_reference(check: bool) -> List[pathlib.Path]:
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
    return pages.rewrite(REFERENCE, "", text, check)


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
