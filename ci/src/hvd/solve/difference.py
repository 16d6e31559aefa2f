"""The differences between two solutions."""

from __future__ import annotations

import dataclasses
from typing import Iterator, List, Sequence, Tuple

from hvd.solve import kept
from hvd.solve.kept import Package
from hvd.solve.sides import Side

#: Two packages of one name are paired by the first of these that they have in common.
_LIKENESS = (
    lambda package: package,
    lambda package: (package.version, package.variants),
    lambda package: package.version,
    lambda package: package.name,
)


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing that changed."""

    package: str
    kind: str  # added, removed, version, variants, compiler, architecture, from, hash only
    before: str = ""  # the old value; empty for none
    after: str = ""


def compare(before: Side, after: Side) -> List[Difference]:
    """The changes from ``before`` to ``after``, by package.

    Where one of them is a kept solution, only what that shows is compared.
    """
    old, new = before.packages, after.packages
    if not (before.whole and after.whole):
        old, new = kept.reduce(old), kept.reduce(new)
    changes: List[Difference] = []
    for name in sorted({package.name for package in (*old, *new)}):
        pairs = _pairs([p for p in old if p.name == name], [p for p in new if p.name == name])
        for was, now in pairs:
            if was is None:
                changes.append(Difference(name, "added", after=_described(now)))
            elif now is None:
                changes.append(Difference(name, "removed", before=_described(was)))
            else:
                changes += _between(was, now)
    return changes


def _pairs(old: Sequence[Package], new: Sequence[Package]) -> Iterator[Tuple]:
    """Each of ``old`` with the one of ``new`` that is most like it; None where there is none."""
    old, new = list(old), list(new)
    for key in _LIKENESS:
        for was in list(old):
            now = next((each for each in new if key(each) == key(was)), None)
            if now is not None:
                old.remove(was)
                new.remove(now)
                yield was, now
    yield from ((was, None) for was in old)
    yield from ((None, now) for now in new)


def _between(was: Package, now: Package) -> Iterator[Difference]:
    gone = [word for word in was.variants if word not in now.variants]
    come = [word for word in now.variants if word not in was.variants]
    values = {
        "version": (was.version, now.version),
        "variants": (" ".join(gone), " ".join(come)),
        "compiler": (was.compiler, now.compiler),
        "architecture": (was.architecture, now.architecture),
        "from": (was.origin, now.origin),
    }
    found = [
        Difference(was.name, kind, *pair) for kind, pair in values.items() if len(set(pair)) > 1
    ]
    if not found and was.hash != now.hash:
        # the recipe is part of the hash, and so is every dependency's
        why = "its recipe" if was.recipe != now.recipe else "a dependency, or a patch"
        found.append(Difference(was.name, "hash only", was.hash[:7], f"{now.hash[:7]}, by {why}"))
    yield from found


def _described(package: Package) -> str:
    words = [f"@{package.version}", *package.variants]
    if package.origin != "built":
        words.append(f"({package.origin})")
    return " ".join(words)
