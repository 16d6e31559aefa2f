"""What changed between two solutions."""

from __future__ import annotations

import dataclasses
from typing import Dict, Iterator, List, Sequence, Tuple

from hvd.solve.sides import Package, Side

#: What a package can have of another solution, by the name that people use.
_FIELDS = {
    "version": "version",
    "compiler": "compiler",
    "architecture": "architecture",
    "origin": "from",
}


@dataclasses.dataclass(frozen=True)
class Change:
    """One thing that changed.

    Args:
        package: the package.
        kind: ``added``, ``removed``, ``version``, ``variants``, ``compiler``, ``architecture``,
            ``from``, or ``hash only``.
        before: what it was; empty where it was not there.
        after: what it is.
    """

    package: str
    kind: str
    before: str = ""
    after: str = ""


def compare(before: Side, after: Side) -> List[Change]:
    """What ``after`` has otherwise than ``before``, by package.

    Where one of them is a table, what a table does not show is not compared.
    """
    reduced = before.table or after.table
    old = _by_name(before.comparable if reduced else before.packages)
    new = _by_name(after.comparable if reduced else after.packages)
    changes: List[Change] = []
    for name in sorted({*old, *new}):
        for was, now in _pairs(old.get(name, []), new.get(name, [])):
            if was is None:
                changes.append(Change(name, "added", after=_described(now)))
            elif now is None:
                changes.append(Change(name, "removed", before=_described(was)))
            else:
                changes += _between(was, now)
    return changes


def _by_name(packages: Sequence[Package]) -> Dict[str, List[Package]]:
    found: Dict[str, List[Package]] = {}
    for package in packages:
        found.setdefault(package.name, []).append(package)
    return found


def _pairs(old: List[Package], new: List[Package]) -> Iterator[Tuple]:
    """Each of ``old`` with the one of ``new`` that is most like it; None where there is none."""
    old, new = list(old), list(new)
    alike = (
        lambda a, b: a == b,
        lambda a, b: a.version == b.version and a.variants == b.variants,
        lambda a, b: a.version == b.version,
        lambda a, b: True,
    )
    for same in alike:
        for was in list(old):
            now = next((each for each in new if same(was, each)), None)
            if now is not None:
                old.remove(was)
                new.remove(now)
                yield was, now
    yield from ((was, None) for was in old)
    yield from ((None, now) for now in new)


def _between(was: Package, now: Package) -> Iterator[Change]:
    found = [
        Change(was.name, title, getattr(was, field), getattr(now, field))
        for field, title in _FIELDS.items()
        if getattr(was, field) != getattr(now, field)
    ]
    gone = [word for word in was.variants if word not in now.variants]
    come = [word for word in now.variants if word not in was.variants]
    if gone or come:
        position = 1 if found and found[0].kind == "version" else 0
        found.insert(position, Change(was.name, "variants", " ".join(gone), " ".join(come)))
    if not found and was.hash != now.hash:
        # the recipe is part of the hash, and so is every dependency's
        why = "its recipe" if was.recipe != now.recipe else "a dependency, or a patch"
        found.append(Change(was.name, "hash only", was.hash[:7], f"{now.hash[:7]}, by {why}"))
    yield from found


def _described(package: Package) -> str:
    words = [f"@{package.version}", *package.variants]
    if package.origin != "built":
        words.append(f"({package.origin})")
    return " ".join(words)
