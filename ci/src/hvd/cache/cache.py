"""One binary cache, and what it has of an environment."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from typing import Any, Dict, List, Mapping, Tuple

import yaml

from hvd.cache import keyring
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.model.environment import Environment
from hvd.solve import difference, queries, sides
from hvd.solve.sides import Side
from hvd.solve.spack import Spack

#: Asks Spack what a cache has.
#: What the cache is called in Spack's configuration.
NAME = "hvd-cache"
_SCHEME = re.compile(r"[a-z0-9+]+://")
#: What is wrong with a package that is not good, and what to do.
_PROBLEMS = {
    "missing": ("is not in the cache", "build it, and push it"),
    "unsigned": ("is not signed", "have it pushed with a key, or take it as it is: --unsigned"),
    "untrusted": (
        "is signed with a key that is not trusted",
        "if you trust its owner: ./hvd cache trust FILE, or a whole fingerprint",
    ),
    "expired": ("is signed with a key that has expired", "have it pushed again, with a new key"),
    "revoked": ("is signed with a key that was revoked", "have it pushed again, with a new key"),
    "changed": (
        "is not what was signed",
        "do not use this cache before it is known why; then push it again with --force",
    ),
}
#: Differences that an error tells; more would hide the ones that matter.
_TOLD = 5


@dataclasses.dataclass(frozen=True)
class Cache:
    """A binary cache.

    Args:
        url: its address: ``file://``, ``https://``, ``s3://``, ``oci://`` or another of Spack's.
        unsigned: take what is not signed.
    """

    url: str
    unsigned: bool = False

    @property
    def oci(self) -> bool:
        """It is in a container registry, where Spack signs nothing."""
        return self.url.startswith("oci")


def named(text: str, unsigned: bool = False) -> Cache:
    """The cache at an address or in a directory.

    Raises:
        HvdError: none is named.
    """
    if not text:
        raise HvdError(
            "no binary cache is named",
            "give --url: a directory, file://, https://, s3:// or oci://",
        )
    if not _SCHEME.match(text):
        text = pathlib.Path(text).expanduser().absolute().as_uri()
    return Cache(text.rstrip("/"), unsigned)


@dataclasses.dataclass(frozen=True)
class Package:
    """A package that an environment installs, and what the cache has of it.

    Args:
        name: its name.
        version: its version.
        hash: its whole hash.
        installed: it is here already.
        state: ``good``, or a key of the table of problems.
        file: the file in the cache that says so.
        detail: more about it: the key, or what is wrong.
    """

    name: str
    version: str
    hash: str
    installed: bool
    state: str
    file: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}/{self.hash[:7]}"


def scope(spack: Spack, cache: Cache) -> pathlib.Path:
    """Write the configuration that adds ``cache`` to Spack's, and return its directory."""
    directory = spack.state / "cache"
    entry = {"url": cache.url, "source": False, "binary": True, "signed": not cache.unsigned}
    files = {
        "mirrors": {NAME: entry},
        # without it Spack takes no gpg and patchelf, not even those that are there; from nowhere
        # else, for all that
        "bootstrap": {"enable": True, "sources:": [], "trusted:": {}},
    }
    for section, content in files.items():
        text = yaml.safe_dump({section: content})
        write_atomically(directory / f"{section}.yaml", text.encode())
    return directory


def contents(
    spack: Spack, environment: Environment, cache: Cache, log: pathlib.Path, mode: str
) -> Tuple[List[Package], Mapping[str, List[Dict[str, Any]]]]:
    """What ``cache`` has of the solved ``environment``.

    Args:
        mode: ``look``, ``verify`` to fetch and check each package, or ``install`` to do so with
            those that are not installed.

    Returns:
        The packages that the environment installs, what needs another before that; and by the
        hash of a root that is missing, the solutions that the cache has of the same package.

    Raises:
        HvdError: there is no gpg to check signatures with.
    """
    if not cache.unsigned:
        keyring.prepare(paths.keyring())
    words = [cache.url, mode, "unsigned" if cache.unsigned else "signed"]
    output = spack.run(
        *("-C", scope(spack, cache), "-e", environment.directory, "python", queries.CACHE, *words),
        log=log,
        timeout=1800,
    ).output
    found = json.loads(output.splitlines()[-1])
    return [Package(**each) for each in found["packages"]], found["near"]


def require(
    cache: Cache,
    packages: List[Package],
    near: Mapping[str, List[Dict[str, Any]]],
    solved: Mapping[str, Any],
    log: pathlib.Path,
) -> None:
    """See that all can be installed from ``cache`` that is not installed.

    Args:
        packages: what it has; see :func:`contents`.
        near: likewise.
        solved: the environment's concrete specs by hash.

    Raises:
        HvdError: it cannot; says what is wrong with which file.
    """
    bad = [package for package in packages if not package.installed and package.state != "good"]
    if not bad:
        return
    # what was tampered with is worse than what is not there
    worst = min(bad, key=lambda package: (package.state == "missing", package.hash not in near))
    what, remedy = _PROBLEMS[worst.state]
    message = f"{worst} {what}: {worst.file}"
    if worst.state == "missing":
        message = f"{worst} {what} {cache.url}" + _nearest(near.get(worst.hash, []), solved)
        remedy += "; or solve as those did who pushed, with --python where they took that"
    elif worst.detail:
        message += f" ({worst.detail.splitlines()[0]})"
    more = len(bad) - 1
    message += f"; {more} other{'s' if more > 1 else ''} cannot be used either" if more else ""
    raise HvdError(f"{message}; nothing was installed", remedy, log)


def _nearest(candidates: List[Dict[str, Any]], solved: Mapping[str, Any]) -> str:
    """What the most similar solution in the cache has otherwise, as the end of a sentence."""
    here = sides.of_specs("here", dict(solved))
    differences = []
    for specs in candidates:
        there = sides.of_specs("there", specs)
        differences.append(difference.compare(there, _like(here, there)))
    if not differences:
        return ""
    closest = min(differences, key=len)
    if not closest:
        return ", though its index says so"
    told = [each for each in closest if each.kind != "hash only"] or closest
    lines = [
        f"{each.package}: {each.kind} {each.before or '-'}, here {each.after or '-'}"
        for each in told[:_TOLD]
    ]
    lines += [f"and {len(told) - _TOLD} more"] if len(told) > _TOLD else []
    return ", but there is one with " + "; ".join(lines)


def _like(here: Side, there: Side) -> Side:
    """``here`` without packages that a cache tells nothing of: what others are built with."""
    names = {package.name for package in there.packages}
    packages = [package for package in here.packages if package.name in names]
    return dataclasses.replace(here, packages=packages)
