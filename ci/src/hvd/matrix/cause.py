"""Why a cell failed: the first error in its log, and the known cause."""

from __future__ import annotations

import re
from typing import Iterable, Tuple

from hvd.matrix.definition import Cause
from hvd.report.text import plain

#: First errors of compilers, CMake, linkers, pip, Python and Spack.
_ERROR = re.compile(
    r"""(?x)
    :\ (?:fatal\ )?error:\ | ^CMake\ Error | ^(?:collect2|ld|/\S*/ld):\ .*(?:error|undefined)
    | undefined\ (?:symbol|reference) | ^ERROR:\ | ^==>\ Error:
    | ^(?:\w+\.)*\w*(?:Error|Exception)(?::\ |$)
    | (?i:segmentation\ fault) | Out\ of\ memory | No\ space\ left
    """
)
#: Lines that only repeat that something failed.
_AFTERMATH = re.compile(
    r"CalledProcessError|exit status|subprocess-exited-with-error|packages failed to install"
)
#: The first reason why Spack has no solution.
_UNSOLVED = re.compile(r"failed to concretize .*\n\s+1\. (.+)")
#: Characters of an error that are kept.
_MOST = 300


def find(causes: Iterable[Cause], text: str, otherwise: str) -> Tuple[str, str]:
    """Return the first error of a log, or ``otherwise`` if it has none, and the known cause."""
    return (_first_error(text) or otherwise.strip())[:_MOST], known(causes, f"{text}\n{otherwise}")


def known(causes: Iterable[Cause], text: str) -> str:
    """Return the name of the first cause that ``text`` matches; empty if none does."""
    return next((cause.name for cause in causes if re.search(cause.pattern, text)), "")


def _first_error(text: str) -> str:
    text = plain(text)
    unsolved = _UNSOLVED.search(text)
    if unsolved:
        return unsolved[1]
    errors = [line.strip() for line in text.splitlines() if _ERROR.search(line.strip())]
    return next((line for line in errors if not _AFTERMATH.search(line)), (errors or [""])[0])
