"""A newer version: the lines to change, the cells of the support matrix that tell, and results."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, Dict, List, Sequence, Tuple

import cattrs

from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.paths import shorten
from hvd.report import templates
from hvd.upkeep.change import Change

#: Raised whenever a field is added, removed or changes its meaning.
FORMAT = 1
#: The files of the proposals, beside each other.
JSON, PAGE = "proposals.json", "proposals.md"


@dataclasses.dataclass(frozen=True)
class Tried:
    """The result of a cell: ``passed``, ``failed``, ``refused``, ``skipped`` or ``broken``."""

    cell: str
    result: str
    reason: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A newer version of one thing.

    Args:
        cells: names of cells of the support matrix.
        note: what a person has to know, or do as well.
        results: of those cells that were tried with the changes.
    """

    name: str
    pinned: str
    newest: str
    changes: Tuple[Change, ...]
    cells: Tuple[str, ...]
    note: str = ""
    results: Tuple[Tried, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.name}@{self.newest}"

    @property
    def verdict(self) -> str:
        """``works``, ``fails``, or ``not known``."""
        outcomes = {each.result for each in self.results}
        if outcomes & {"failed", "refused", "broken"}:
            return "fails"
        return "works" if "passed" in outcomes else "not known"


def write(proposals: Sequence[Proposal], directory: pathlib.Path) -> List[pathlib.Path]:
    """Write the proposals as JSON, for programs, and as Markdown, the text of a change."""
    data: Dict[str, Any] = {
        "format": FORMAT,
        "proposals": [{**dataclasses.asdict(p), "verdict": p.verdict} for p in proposals],
    }
    contents = {JSON: json.dumps(data, indent=1) + "\n", PAGE: page(proposals)}
    for name, text in contents.items():
        write_atomically(directory / name, text.encode())
    return [directory / name for name in contents]


def load(directory: pathlib.Path) -> List[Proposal]:
    """Read what :func:`write` wrote.

    Raises:
        HvdError: there is no such file, or it has another format.
    """
    path = directory / JSON
    try:
        data = json.loads(path.read_bytes())
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}, and not {FORMAT}")
        return [cattrs.structure(each, Proposal) for each in data["proposals"]]
    except (OSError, ValueError, KeyError, TypeError, cattrs.BaseValidationError) as error:
        raise HvdError(
            f"{shorten(path)}: {error}", "look up the versions: ./hvd versions --check"
        ) from error


def page(proposals: Sequence[Proposal]) -> str:
    """Return the text of a change with ``proposals``."""
    return templates.render("upkeep/proposals.md.j2", proposals=proposals)
