"""Offers for upstream: each patch with its text, from its own header, and the recipes."""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import re
from typing import List, Mapping, Tuple

from hvd.core import paths, process
from hvd.core.errors import CommandFailed, HvdError
from hvd.docs import site_page
from hvd.fetch.history import History
from hvd.model import recipe, specs
from hvd.model.environment import HOROVOD
from hvd.report import templates

PAGE = paths.ROOT / "docs" / "upstream.md"
_FILE = re.compile(r"^(?:---|\+\+\+) [ab]/(\S+)", re.MULTILINE)
_LINK = re.compile(r"https://[^\s,;)]*[^\s,;).]")
HERE = "Horovod"
#: Horovod's sources from elsewhere are submodules.
_SUBMODULE = re.compile(r"third_party/([^/]+)/")


@dataclasses.dataclass(frozen=True)
class Offer:
    """A patch of the recipe."""

    file: pathlib.Path
    title: str  #: the first line of its header
    text: str  #: the whole header
    versions: str
    links: Tuple[str, ...]
    to: Tuple[str, ...]  #: ``Horovod``, and the projects of the submodules that it changes
    current: bool  #: the newest release needs it; what only older ones need is not sent


def offers() -> List[Offer]:
    """Return every patch, in the order of the recipe."""
    known = recipe.load(HOROVOD)
    newest = next(iter(known.versions()))
    found = []
    for each in known.named("patch"):
        # whatever the variants are
        ranges = [specs.parse_once(condition).versions for condition in each.when]
        current = all(not range_ or specs.version_in(newest, range_) for range_ in ranges)
        found.append(_offer(known.directory / each.arguments[0], current))
    return found


def _offer(file: pathlib.Path, current: bool) -> Offer:
    header, separator, diff = file.read_text().partition("\n--- ")
    changed = _FILE.findall(separator + diff)
    projects = [_SUBMODULE.match(name) for name in changed if name != "dev/null"]
    names = {match[1] if match else HERE for match in projects}
    upstream = re.search(r"^Upstream: (.*(?:\n {10}.*)*)", header, re.MULTILINE)
    versions = re.search(r"^Versions: (\S+(?: (?:to|and) [\d.]*\d)?)", header, re.MULTILINE)
    return Offer(
        file=file,
        title=header.splitlines()[0],
        text=header.strip(),
        versions=versions[1].rstrip(".;,") if versions else "",
        links=tuple(_LINK.findall(upstream[1])) if upstream else (),
        to=tuple(sorted(names)),
        current=current,
    )


def recipes() -> Mapping[str, str]:
    """Return the packages that spack-packages may take, and the first sentence about each."""
    found = {}
    for file in sorted(paths.PACKAGES.glob("*/package.py")):
        tree = ast.parse(file.read_text())
        (body,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
        text = " ".join((ast.get_docstring(body) or "").split())
        found[file.parent.name.replace("_", "-")] = re.split(r"(?<=\.)\s", text)[0]
    return found


def write(check: bool) -> List[pathlib.Path]:
    """Bring docs/upstream.md up to date, or with ``check`` refuse a stale one."""
    made = templates.render("upkeep/upstream.md.j2", offers=offers(), recipes=recipes())
    text = site_page.put(PAGE, made)
    stale = {} if PAGE.read_text() == text else {PAGE: text.encode()}
    return site_page.bring_up_to_date(stale, check, "the patches say", "./hvd docs")


def series(
    address: str, directory: pathlib.Path, log: pathlib.Path
) -> Tuple[List[str], List[str]]:
    """Write a mail for ``git am`` of each patch that Horovod's default branch can take.

    Args:
        address: Horovod's repository.
        directory: where the mails go; must not exist.

    Returns:
        The names of the patches that are in the series, and of those that do not apply there.

    Raises:
        HvdError: the repository cannot be reached, or ``directory`` exists.
    """
    if directory.exists():
        raise HvdError(f"{directory} is there already", "remove it, or name another with --to")
    history = History(address, paths.cache() / "horovod-history")
    tree = paths.state() / "upstream" / "horovod"
    history.checkout(history.fetch().id, tree)
    start = history.commit_of(tree)
    git = ("git", "-C", tree)
    taken, left = [], []
    for each in offers():
        if not each.current or HERE not in each.to:
            continue
        try:
            # the rest of it is for the projects of the submodules
            words = ["apply", "--index", "--exclude=third_party/*", each.file]
            process.run([*git, *words], log=log)
        except CommandFailed:
            # it is there already, in part or in another form
            left.append(each.file.name)
            continue
        process.run([*git, "commit", "--quiet", "--no-verify", "-s", "-m", each.text], log=log)
        taken.append(each.file.name)
    process.run([*git, "format-patch", "--quiet", "-o", directory.absolute(), start], log=log)
    return taken, left
