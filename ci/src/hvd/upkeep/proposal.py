"""A newer version: the lines to change, the cells of the support matrix that tell, and results."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Callable, Dict, Iterable, List, Sequence, Tuple

import cattrs

from hvd.core import paths, process
from hvd.core.errors import CommandFailed, HvdError
from hvd.core.files import write_atomically
from hvd.core.steps import Step
from hvd.matrix import result
from hvd.report import templates
from hvd.upkeep import checkout

#: Raised whenever a field is added, removed or changes its meaning.
FORMAT = 1
#: The files of the proposals, beside each other.
JSON, PAGE = "proposals.json", "proposals.md"
_LOOK_UP = "look up the versions again: ./hvd versions --check"


@dataclasses.dataclass(frozen=True)
class Change:
    """A line of a file, and what takes its place: one line or several."""

    file: str  #: relative to the checkout
    line: int  #: its number, from 1
    before: str
    after: str

    @classmethod
    def of(cls, file: pathlib.Path, line: int, edit: Callable[[str], str]) -> Change:
        """Return the change that ``edit`` makes to a line of this checkout's ``file``."""
        before = file.read_text().split("\n")[line - 1]
        return cls(str(file.relative_to(paths.ROOT)), line, before, edit(before))

    @classmethod
    def insertion(cls, file: pathlib.Path, line: int, text: str) -> Change:
        """Return the change that puts ``text`` after a line of this checkout's ``file``."""
        return cls.of(file, line, lambda before: f"{before}\n{text}")

    @property
    def diff(self) -> str:
        """The change as lines with ``-`` and ``+``; an insertion has no ``-``."""
        old, new = [self.before], self.after.split("\n")
        if self.before in new:
            old, new = [], [line for line in new if line != self.before]
        return "\n".join([*(f"-{line}" for line in old), *(f"+{line}" for line in new)])


@dataclasses.dataclass(frozen=True)
class Tried:
    """The result of a cell: ``passed``, ``failed``, ``refused``, ``skipped`` or ``broken``."""

    cell: str
    result: str
    reason: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A newer version of one thing."""

    name: str
    pinned: str
    newest: str
    changes: Tuple[Change, ...]
    cells: Tuple[str, ...]  #: names of cells of the support matrix
    note: str = ""  #: what a person has to know, or do as well
    results: Tuple[Tried, ...] = ()  #: of those cells that were tried with the changes

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
    data = [{**dataclasses.asdict(each), "verdict": each.verdict} for each in proposals]
    text = json.dumps({"format": FORMAT, "proposals": data}, indent=1) + "\n"
    files = [directory / JSON, directory / PAGE]
    for file, content in zip(files, (text, page(proposals))):
        write_atomically(file, content.encode())
    return files


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
        raise HvdError(f"{paths.shorten(path)}: {error}", _LOOK_UP) from error


def page(proposals: Sequence[Proposal]) -> str:
    """Return the text of a change with ``proposals``."""
    return templates.render("upkeep/proposals.md.j2", proposals=proposals)


def apply(proposals: Iterable[Proposal], root: pathlib.Path) -> List[pathlib.Path]:
    """Make the changes of ``proposals`` in the checkout ``root``, all or none.

    Lines that other changes have moved are found by their content.

    Returns:
        The files that were written.

    Raises:
        HvdError: a file has no longer the line that is to change.
    """
    texts: Dict[pathlib.Path, List[str]] = {}
    for change in (change for each in proposals for change in each.changes):
        path = root / change.file
        lines = texts.setdefault(path, path.read_text().split("\n"))
        places = [number for number, line in enumerate(lines, 1) if line == change.before]
        if not places:
            gone = f"line {change.line} is no longer '{change.before.strip()}'"
            raise HvdError(f"{change.file}: {gone}", _LOOK_UP)
        place = min(places, key=lambda number: abs(number - change.line))
        lines[place - 1 : place] = change.after.split("\n")
    for path, lines in texts.items():
        write_atomically(path, "\n".join(lines).encode())
    return list(texts)


def attempt(proposal: Proposal, copy: pathlib.Path, cuda: bool, task: Step) -> Proposal:
    """Try the cells of ``proposal`` in a copy of this checkout, and return it with the results.

    Args:
        copy: where to keep the copy, whose frameworks serve the next one.
        cuda: accept CUDA builds of frameworks.
    """
    checkout.copy(copy)
    apply([proposal], copy)
    results = [_attempt(cell, copy, cuda, task) for cell in proposal.cells]
    return dataclasses.replace(proposal, results=tuple(results))


def _attempt(cell: str, copy: pathlib.Path, cuda: bool, task: Step) -> Tried:
    task.say(cell)
    file = copy / "docs" / "matrix" / f"{cell}.json"
    # what an earlier run found is not news
    file.unlink(missing_ok=True)
    command = checkout.command("matrix", "--filter", cell, *["--cuda"] * cuda)
    environment = checkout.variables(copy)
    try:
        process.run(command, log=task.log, cwd=copy, env=environment, check=False)
        made = result.load(file) if file.exists() else None
    except CommandFailed as error:
        return Tried(cell, "broken", error.message)
    if made is None:
        lines = [line for line in process.tail(task.log).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error:")]
        return Tried(cell, "broken", (errors or lines or ["it has no result"])[-1])
    return Tried(cell, made.result, made.reason, made.total)
