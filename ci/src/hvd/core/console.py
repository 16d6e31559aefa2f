"""The output for people: a line per step with its time, a live line while it runs."""

from __future__ import annotations

import contextlib
import pathlib
import re
import time
from typing import Iterator, Optional

import rich.console
import rich.live
import rich.markup
import rich.text

from hvd.core.errors import HvdError
from hvd.core.paths import shorten
from hvd.core.steps import Step

out = rich.console.Console(highlight=False, soft_wrap=True)
err = rich.console.Console(stderr=True, highlight=False, soft_wrap=True)

_quiet = False

_PERCENT = re.compile(r"\[ *(\d+)%\]")
_COLOURS = {"ok": "green", "cached": "green", "skipped": "yellow", "failed": "red"}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def set_quiet(quiet: bool) -> None:
    """Show errors and results only."""
    global _quiet
    _quiet = quiet


def for_json() -> None:
    """Keep standard output for JSON: information goes to standard error."""
    global out
    out = err


def note(message: str) -> None:
    """One line of information."""
    if not _quiet:
        out.print(f"  {rich.markup.escape(message)}")


def aside(message: str) -> None:
    """One line of information where standard output is for programs."""
    if not _quiet:
        err.print(f"  {rich.markup.escape(message)}")


def heading(name: str) -> None:
    """The name of a stage."""
    if not _quiet:
        out.print(f"[bold]{rich.markup.escape(name)}[/bold]")


def error(problem: HvdError) -> None:
    """A failure: the failing command's last lines, what happened, the log, a hint."""
    for line in problem.tail.splitlines():
        err.print(f"    [dim]{rich.markup.escape(line)}[/dim]")
    err.print(f"[bold red]error:[/bold red] {rich.markup.escape(problem.message)}")
    if problem.log:
        err.print(f"  log: {rich.markup.escape(shorten(problem.log))}")
    if problem.remedy:
        err.print(f"  hint: {rich.markup.escape(problem.remedy)}")


@contextlib.contextmanager
def step(shown: Step) -> Iterator[None]:
    """Show a step; its line says how it ended and how long it took when the block ends."""
    begin = time.monotonic()

    def line() -> rich.text.Text:
        shown.seconds = time.monotonic() - begin
        return _live(shown)

    with contextlib.ExitStack() as stack:
        if out.is_terminal and not _quiet:
            live = rich.live.Live(
                get_renderable=line, console=out, refresh_per_second=8, transient=True
            )
            stack.enter_context(live)
        try:
            yield
        except BaseException:
            shown.status = "failed"
            raise
        finally:
            stack.close()
            shown.seconds = time.monotonic() - begin
            verdict(shown)


def verdict(step: Step) -> None:
    """Print the line of a step that has ended."""
    if _quiet:
        return
    name = rich.markup.escape(f"{step.name:<46}")
    detail = rich.markup.escape(f"  {step.detail}" if step.detail else "")
    colour = f"[{_COLOURS[step.status]}]{step.status}[/]"
    out.print(f"  {name}{_time(step.seconds):>8}  {colour}{detail}")


def _live(step: Step) -> rich.text.Text:
    """Return the line of a running step, with what its log says last of its progress."""
    percent = _percent(step.log) if step.log else None
    bar = ""
    if percent is not None:
        filled = percent * 24 // 100
        bar = f"  {'━' * filled}{'╌' * (24 - filled)} {percent:3d} %"
    spin = _SPINNER[int(step.seconds * 8) % len(_SPINNER)]
    detail = f"  {step.detail}" if step.detail else ""
    return rich.text.Text(f"  {spin} {step.name:<44}{_time(step.seconds):>8}{bar}{detail}")


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)}:{int(seconds % 60):02d} min"


def _percent(log: pathlib.Path) -> Optional[int]:
    """The last ``[ 42%]`` that CMake's make wrote at the end of ``log``."""
    with contextlib.suppress(OSError):
        with open(log, "rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - 16384))
            found = _PERCENT.findall(stream.read().decode(errors="replace"))
        if found:
            return int(found[-1])
    return None
