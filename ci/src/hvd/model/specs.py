"""The part of Spack's spec language that the recipe and the environments use.

``name@1.2:1.4 +variant ~variant key=a,b ^dependency@2: %compiler@12: %c,cxx=gcc``

Grammar and meaning: https://spack.readthedocs.io/en/latest/spec_syntax.html.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Dict, FrozenSet, List, Tuple, Union

import archspec.cpu

from hvd.core.errors import HvdError

Value = Union[bool, FrozenSet[str]]

_NAME = r"[A-Za-z_][\w-]*(?:\.[\w-]+)*"
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<edge>\^|%%?)\s*(?:\[[^\]]*\]\s*)?(?:[a-z,]+=)?(?P<dependency>{_NAME})?
    | @(?P<versions>[\w.:,=-]+)
    | (?P<sign>\+\+?|~~?)(?P<flag>{_NAME})
    | (?P<key>{_NAME})\s*(?::=|==?)\s*(?P<values>"[^"]*"|[^\s"^%]+)
    | (?P<name>{_NAME})
    )""",
    re.VERBOSE,
)


@dataclasses.dataclass
class Spec:
    """A spec: abstract, or concrete with one exact version.

    ``unread`` holds the clauses that :func:`parse` does not understand.
    """

    name: str = ""
    versions: str = ""
    variants: Dict[str, Value] = dataclasses.field(default_factory=dict)
    dependencies: Dict[str, Spec] = dataclasses.field(default_factory=dict)
    unread: Tuple[str, ...] = ()

    def intersects(self, other: Spec) -> bool:
        """Return whether a spec can satisfy both this one and ``other``."""
        if self.versions and other.versions and not _overlap(self.versions, other.versions):
            return False
        named = {k: v for k, v in other.variants.items() if k in self.variants}
        return self.satisfies(dataclasses.replace(other, versions="", variants=named))

    def satisfies(self, condition: Spec) -> bool:
        """Return whether this (concrete) spec satisfies ``condition``."""
        if condition.name not in ("", self.name):
            return False
        if condition.versions and not (
            self.versions and version_in(self.versions, condition.versions)
        ):
            return False
        return all(
            _has(key, self.variants.get(key), wanted) for key, wanted in condition.variants.items()
        ) and all(
            name in self.dependencies and self.dependencies[name].satisfies(wanted)
            for name, wanted in condition.dependencies.items()
        )

    def on(self, *names: str) -> List[str]:
        """Return those of the variants ``names`` that are on."""
        return [name for name in names if self.variants.get(name) is True]

    def values(self, name: str) -> Tuple[str, ...]:
        """Return the values but "none" of the variant ``name``, sorted; it may be absent."""
        return tuple(sorted(self.variants.get(name, frozenset()) - {"none"}))

    def __str__(self) -> str:
        words = [self.name + (f"@{self.versions}" if self.versions else "")]
        for key, value in sorted(self.variants.items()):
            if isinstance(value, bool):
                words[0] += f"{'+' if value else '~'}{key}"
            else:
                words.append(f"{key}={','.join(sorted(value))}")
        words += [f"^{dependency}" for dependency in self.dependencies.values()]
        return " ".join(filter(None, words))


def parse(text: str, strict: bool = True) -> Spec:
    """Parse one spec.

    Args:
        strict: refuse a clause that only Spack understands; otherwise keep it as ``unread``.
    """
    root = current = Spec()
    position = 0
    while text[position:].strip():
        token = _TOKEN.match(text, position)
        if not token:
            clause = text[position:].split()[0]
            if strict:
                raise HvdError(
                    f"'{text}': cannot parse '{clause}'",
                    "see https://spack.readthedocs.io/en/latest/spec_syntax.html",
                )
            root.unread += (clause,)
            position = text.index(clause, position) + len(clause)
            continue
        position = token.end()
        if token["edge"]:
            current = Spec(token["dependency"] or "")
            root.dependencies[current.name] = current
        elif token["versions"]:
            current.versions = token["versions"].lstrip("=")
        elif token["flag"]:
            current.variants[token["flag"]] = token["sign"][0] == "+"
        elif token["key"]:
            current.variants[token["key"]] = frozenset(token["values"].strip('"').split(","))
        elif current.name:
            raise HvdError(
                f"'{text}': a second name, '{token['name']}'", "put ^ in front of a dependency"
            )
        else:
            current.name = token["name"]
    return root


@functools.cache
def parse_once(text: str) -> Spec:
    """`parse` a constant spec; do not modify the result."""
    return parse(text)


@functools.cache
def version_in(version: str, constraint: str) -> bool:
    """Return whether ``version`` is in ``constraint``: ``1.2``, ``1.2:``, ``:1.4``, ``1:2,4:``.

    As in Spack, bounds are inclusive and a bound covers what it begins: ``1.4.3`` is in
    ``:1.4``.  Named versions (``master``) are newer than numbers.  A range is only in itself.
    """
    if re.search("[:,]", version):
        return version == constraint
    return any(
        version == part[1:]
        if part.startswith("=")
        else version_key(version) >= version_key(low) and not _beyond(version, high)
        for part in constraint.split(",")
        for low, high in [_bounds(part)]
    )


def version_key(version: str) -> List[Tuple[int, int, str]]:
    """A key that orders versions as Spack does: numbers by value, names after them."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"[.\-_]", version)
        if part
    ]


def _overlap(one: str, other: str) -> bool:
    """Return whether a version can be in both constraints."""
    return any(
        not (_beyond(low, higher) or _beyond(lower, high))
        for low, high in map(_bounds, one.split(","))
        for lower, higher in map(_bounds, other.split(","))
    )


def _bounds(part: str) -> Tuple[str, str]:
    """The ends of ``1.2:1.4``, ``1.2:`` or ``1.2``, which covers all that it begins."""
    low, colon, high = part.lstrip("=").partition(":")
    return (low, high) if colon else (low, low)


def _beyond(low: str, high: str) -> bool:
    """Return whether ``low`` begins after the end of ``high``; an open end is empty."""
    first, last = version_key(low), version_key(high)
    return bool(first and last) and first > last and first[: len(last)] != last


def _has(key: str, have: Union[Value, None], wanted: Value) -> bool:
    """Return whether a variant's value ``have`` includes ``wanted``."""
    if isinstance(wanted, bool) or have is None or isinstance(have, bool):
        return have == wanted
    if key == "target":
        return any(_target_in(one, part) for one in have for part in wanted)
    return wanted <= have


def _target_in(target: str, part: str) -> bool:
    """Return whether ``target`` is in ``part``: ``zen3``, ``aarch64:``, ``:zen2``."""
    known = archspec.cpu.TARGETS
    low, colon, high = part.partition(":")
    if not colon:
        return target == part
    return (
        target in known
        and (not low or known[low] <= known[target])
        and (not high or known[target] <= known[high])
    )
