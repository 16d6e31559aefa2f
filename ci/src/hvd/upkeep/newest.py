"""The newest release of a distribution that some Pythons on Linux can install."""

from __future__ import annotations

import functools
from typing import FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from hvd.fetch.python_index import File

#: The files of each release.
Releases = Mapping[Version, Sequence[File]]


def releases(files: Iterable[File]) -> Releases:
    """Group ``files`` by release; those that are neither a wheel nor an sdist are left out."""
    found: dict = {}
    for file in files:
        parse = parse_wheel_filename if file.name.endswith(".whl") else parse_sdist_filename
        try:
            version = parse(file.name)[1]
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue
        found.setdefault(version, []).append(file)
    return found


def supported(files: Sequence[File], pythons: Iterable[str], machine: str) -> List[str]:
    """Return those of ``pythons`` (major.minor) that can install one of ``files``.

    Args:
        machine: the processor, as in the tags of wheels: ``x86_64``.
    """
    return [python for python in pythons if any(_fits(each, python, machine) for each in files)]


def newest(
    known: Releases, pythons: Sequence[str], machine: str, series: str = ""
) -> Optional[Version]:
    """Return the newest final release that all of ``pythons`` can install; None for none.

    Args:
        series: the beginning of the version, such as ``4.1``.
    """
    for version in sorted(known, reverse=True):
        final = not (version.is_prerelease or version.local)
        if final and within(str(version), series):
            if supported(known[version], pythons, machine) == list(pythons):
                return version
    return None


def within(version: str, series: str) -> bool:
    """Return whether ``version`` is of ``series``: 4.1.8 is of 4.1, and of the empty one."""
    return not series or f"{version}.".startswith(f"{series}.")


def _fits(file: File, python: str, machine: str) -> bool:
    try:
        if f"{python}.99" not in SpecifierSet(file.requires_python):
            return False
    except InvalidSpecifier:
        return False
    if not file.name.endswith(".whl"):
        return True
    taken = _tags(python)
    return any(
        (tag.interpreter, tag.abi) in taken
        and (tag.platform == "any" or "linux" in tag.platform and tag.platform.endswith(machine))
        for tag in parse_wheel_filename(file.name)[3]
    )


@functools.cache
def _tags(python: str) -> FrozenSet[Tuple[str, str]]:
    """Return what a wheel's name may say of interpreter and ABI."""
    major, minor = map(int, python.split("."))
    found = [
        *cpython_tags((major, minor), platforms=["any"]),
        *compatible_tags((major, minor), f"cp{major}{minor}", platforms=["any"]),
    ]
    return frozenset((tag.interpreter, tag.abi) for tag in found)
