"""Activation scripts, one for each family of shells.

Each keeps the former values in variables of the shell, and ``hvd_deactivate`` restores them.
"""

from __future__ import annotations

import pathlib
import re
import shlex
from typing import Callable, Dict

from hvd.core.files import write_atomically
from hvd.deliver import template
from hvd.deliver.activation.plan import Plan

#: Characters that no csh interprets.
_PLAIN = re.compile(r"[\w./:+,@-]+", re.ASCII)


def _csh(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    # a ! and a newline need a backslash even between quotes
    text = text.replace("'", "'\"'\"'").replace("!", "\\!").replace("\n", "\\\n")
    return f"'{text}'"


def _fish(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


#: How the shells of each script quote a word: sh, dash, bash, ksh, zsh; csh, tcsh; fish.
FILES: Dict[str, Callable[[str], str]] = {
    "activate.sh": shlex.quote,
    "activate.csh": _csh,
    "activate.fish": _fish,
}


def render(plan: Plan, file: str) -> str:
    """The script called ``file``, a key of `FILES`."""
    return template.render(f"deliver/activation/templates/{file}.j2", FILES[file], plan=plan)


def write(plan: Plan, directory: pathlib.Path) -> None:
    """Write the scripts for all shells into ``directory``.

    Raises:
        HvdError: one cannot be written.
    """
    for file in FILES:
        write_atomically(directory / file, render(plan, file).encode())
