"""Changes of lines of this repository's files: shown, kept and applied."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Dict, Iterable, List

from hvd.core.errors import HvdError
from hvd.core.files import write_atomically


@dataclasses.dataclass(frozen=True)
class Change:
    """A line of a file, and what takes its place: one line or several.

    Args:
        file: relative to the checkout.
        line: the number of the line, from 1.
        before: the line as it is.
    """

    file: str
    line: int
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The change as lines with ``-`` and ``+``; an insertion has no ``-``."""
        old, new = [self.before], self.after.split("\n")
        if self.before in new:
            old, new = [], [line for line in new if line != self.before]
        return "\n".join([*(f"-{line}" for line in old), *(f"+{line}" for line in new)])


def apply(changes: Iterable[Change], root: pathlib.Path) -> List[pathlib.Path]:
    """Make ``changes`` in the checkout ``root``, all or none.

    Lines that other changes have moved are found by their content.

    Returns:
        The files that were written.

    Raises:
        HvdError: a file has no longer the line that is to change.
    """
    texts: Dict[pathlib.Path, List[str]] = {}
    for change in changes:
        path = root / change.file
        lines = texts.setdefault(path, path.read_text().split("\n"))
        places = [number for number, line in enumerate(lines, 1) if line == change.before]
        if not places:
            raise HvdError(
                f"{change.file}: line {change.line} is no longer '{change.before.strip()}'",
                "look up the versions again: ./hvd versions --check",
            )
        place = min(places, key=lambda number: abs(number - change.line))
        lines[place - 1 : place] = change.after.split("\n")
    for path, lines in texts.items():
        write_atomically(path, "\n".join(lines).encode())
    return list(texts)
