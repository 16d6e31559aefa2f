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

out = rich.console.Console(highlight=False, soft_wrap=True)
err = rich.console.Console(stderr=True, highlight=False, soft_wrap=True)

_PERCENT = re.compile(r"\[ *(\d+)%\]")
_COLOURS = {"ok": "green", "cached": "green", "skipped": "yellow", "failed": "red"}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def note(message: str) -> None:
    """One line of information."""
    out.print(f"  {rich.markup.escape(message)}")


def aside(message: str) -> None:
    """One line of information where standard output is for programs."""
    err.print(f"  {rich.markup.escape(message)}")


def heading(name: str) -> None:
    """The name of a stage."""
    out.print(f"[bold]{rich.markup.escape(name)}[/bold]")


def error(problem: HvdError, tail: str = "") -> None:
    """A failure: the failing command's last lines, what happened, the log, a hint."""
    if tail:
        for line in tail.splitlines():
            err.print(f"    [dim]{rich.markup.escape(line)}[/dim]")
    err.print(f"[bold red]error:[/bold red] {rich.markup.escape(problem.message)}")
    if problem.log:
        err.print(f"  log: {rich.markup.escape(shorten(problem.log))}")
    if problem.remedy:
        err.print(f"  hint: {rich.markup.escape(problem.remedy)}")


class Progress:
    """The running step; drawn from what the step's log says last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.detail = ""
        self.verdict = "ok"
        self.log: Optional[pathlib.Path] = None
        self.begin = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begin

    def __rich__(self) -> rich.text.Text:
        percent = _percent(self.log) if self.log else None
        bar = ""
        if percent is not None:
            filled = percent * 24 // 100
            bar = f"  {'━' * filled}{'╌' * (24 - filled)} {percent:3d} %"
        spin = _SPINNER[int(self.seconds * 8) % len(_SPINNER)]
        detail = f"  {self.detail}" if self.detail else ""
        return rich.text.Text(f"  {spin} {self.name:<44}{_time(self.seconds):>8}{bar}{detail}")


@contextlib.contextmanager
def step(name: str) -> Iterator[Progress]:
    """Show a step; its line says how it ended and how long it took when the block ends."""
    progress = Progress(name)
    failed = True
    with contextlib.ExitStack() as stack:
        if out.is_terminal:
            live = rich.live.Live(progress, console=out, refresh_per_second=8, transient=True)
            stack.enter_context(live)
        try:
            yield progress
            failed = False
        finally:
            stack.close()
            word = "failed" if failed else progress.verdict
            verdict(progress.name, progress.seconds, word, progress.detail)


def verdict(name: str, seconds: float, word: str, detail: str = "") -> None:
    """The line of a step that has ended."""
    detail = f"  {detail}" if detail else ""
    name, detail = (rich.markup.escape(text) for text in (f"{name:<46}", detail))
    out.print(f"  {name}{_time(seconds):>8}  [{_COLOURS[word]}]{word}[/]{detail}")


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
