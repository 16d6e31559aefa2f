"""What a failed cell failed of: the first error in its log, and the cause where it is known."""

from __future__ import annotations

import re
from typing import Iterable, Tuple

from hvd.matrix.definition import Cause
from hvd.report.text import plain

#: What the first error of a compiler, CMake, a linker, pip, Python or Spack looks like.
_ERROR = re.compile(
    r"""(?x)
    :\ (?:fatal\ )?error:\ | ^CMake\ Error | ^(?:collect2|ld|/\S*/ld):\ .*(?:error|undefined)
    | undefined\ (?:symbol|reference) | ^ERROR:\ | ^==>\ Error:
    | ^(?:\w+\.)*\w*(?:Error|Exception)(?::\ |$)
    | (?i:segmentation\ fault) | Out\ of\ memory | No\ space\ left
    """
)
#: Such lines say no more than that something failed, which an earlier line has said.
_AFTERMATH = re.compile(
    r"CalledProcessError|exit status|subprocess-exited-with-error|packages failed to install"
)
#: Why Spack has no solution: the first of its reasons.
_UNSOLVED = re.compile(r"failed to concretize .*\n\s+1\. (.+)")
_MOST = 300


def first_error(text: str) -> str:
    """The first line of a log that says what went wrong; empty where none does."""
    text = plain(text)
    unsolved = _UNSOLVED.search(text)
    if unsolved:
        return unsolved[1][:_MOST]
    aftermath = ""
    for line in map(str.strip, text.splitlines()):
        if _ERROR.search(line):
            if not _AFTERMATH.search(line):
                return line[:_MOST]
            aftermath = aftermath or line[:_MOST]
    return aftermath


def known(causes: Iterable[Cause], text: str) -> str:
    """The name of the first cause whose pattern is in ``text``; empty where none is."""
    return next((cause.name for cause in causes if cause.pattern.search(text)), "")


def find(causes: Iterable[Cause], text: str, otherwise: str) -> Tuple[str, str]:
    """The first error of a log, or ``otherwise`` where it has none, and the known cause."""
    return first_error(text) or otherwise.strip()[:_MOST], known(causes, f"{text}\n{otherwise}")
