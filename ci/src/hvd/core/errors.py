"""Errors that end a command: what went wrong, where, and what to do."""

from __future__ import annotations

import difflib
import pathlib
import re
from typing import Iterable, Optional

#: The name and the password in an address.
_USER = re.compile(r"(?<=://)[^\s/@]+@")


def redacted(text: str) -> str:
    """Return ``text`` without the names and passwords of addresses."""
    return _USER.sub("***@", text)


class HvdError(Exception):
    """A failure the user can act on; printed without a traceback.

    Args:
        message: what failed, naming the file and key where there is one.
        remedy: what to do about it.
        log: the file that holds the details.
    """

    #: the last lines that a failing command printed
    tail = ""

    def __init__(self, message: str, remedy: str = "", log: Optional[pathlib.Path] = None) -> None:
        self.message = redacted(message)
        self.remedy = redacted(remedy)
        self.log = log
        super().__init__(self.message)


class CommandFailed(HvdError):
    """A command exited with a non-zero status or outran its time limit.

    Args:
        command: the command line, as one printable string.
        status: exit status; negative for a signal, None for a time-out.
        log: the file with everything it printed.
        seconds: how long it ran.
    """

    def __init__(
        self, command: str, status: Optional[int], tail: str, log: pathlib.Path, seconds: float
    ) -> None:
        ending = "timed out" if status is None else f"exited with status {status}"
        super().__init__(f"`{command}` {ending} after {seconds:.0f} s", log=log)
        self.command = command
        self.status = status
        self.tail = tail
        self.seconds = seconds

    def __reduce__(self):
        """Pickle its own arguments: it may come from another process."""
        return type(self), (self.command, self.status, self.tail, self.log, self.seconds)


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return a remedy that names the choice closest to ``word``, or else all of them."""
    choices = sorted(choices)
    close = difflib.get_close_matches(word, choices, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"use one of {', '.join(choices)}" if choices else ""
