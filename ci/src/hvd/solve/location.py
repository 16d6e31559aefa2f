"""Find a supported Spack and its packages, or clone them."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
from typing import Optional, Sequence

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.core.files import kept
from hvd.core.options import Sources
from hvd.fetch import clone
from hvd.host import machine
from hvd.model.versions import Pair, Pin, pinned
from hvd.solve.spack import BUILTIN, Spack, interpreter

#: What the pinned Spack lacks to refuse a spec in seconds; docs/upstream.md has more.
FIX = paths.ROOT / "ci" / "spack-has-provider.patch"
_SOLVER = re.compile(r"^clingo==.*\n(?: +--hash=.*\n)+", re.MULTILINE)
_VERSION = re.compile(r'^__version__ = "(\d+\.\d+)', re.MULTILINE)


def locate(sources: Sources, log: pathlib.Path) -> Spack:
    """Find or clone a supported Spack and its packages.

    In this order: the one that the user names; ``$SPACK_ROOT`` and ``spack`` on PATH where their
    version is supported; the pinned pair in the cache; the pinned pair from its address.
    """
    root = packages = None
    if sources.spack:
        given = pathlib.Path(sources.spack).expanduser()
        root = given.resolve() if (given / "bin" / "spack").is_file() else None
    elif not sources.pair:
        root = _installed()
    if sources.packages:
        given = pathlib.Path(sources.packages).expanduser()
        packages = given.resolve() if (given / BUILTIN).is_dir() else None
    pair = _pair(root, packages, sources.pair)
    named = {
        "spack": sources.spack,
        "packages": sources.packages,
        "compiler-wrapper": sources.compiler_wrapper,
    }
    addresses = {**pinned().git, **{kind: each for kind, each in named.items() if each}}
    _provide_interpreter(log)
    if not root:
        root = _cached("spack", addresses["spack"], pair.spack, log)
        # git refuses it where it is applied already, and where Spack does not need it
        clone.git("apply", FIX, within=root)
    packages = packages or _cached("packages", addresses["packages"], pair.packages, log)
    return Spack(root, packages.resolve(), pair, addresses)


def _provide_interpreter(log: pathlib.Path) -> None:
    """Make the Python that runs Spack in a root of another processor, with the solver."""

    def fill(directory: pathlib.Path) -> None:
        # with Debian's cffi
        make = [machine.python(), "-m", "venv", "--system-site-packages", directory]
        process.run(make, log=log)
        solver = directory / "solver.txt"
        # the lines from clingo's version to the last of its checksums
        solver.write_text(_SOLVER.search(paths.REQUIREMENTS.read_text())[0])
        pip = [directory / "bin" / "python", "-m", "pip", "install", "--no-deps"]
        process.run([*pip, "--require-hashes", "-r", solver], log=log)

    if machine.foreign():
        kept(interpreter().parents[1], fill)


def version(root: pathlib.Path) -> str:
    """``major.minor`` of the Spack at ``root``; empty where there is none."""
    try:
        text = (root / "lib" / "spack" / "spack" / "__init__.py").read_text()
    except OSError:
        return ""
    match = _VERSION.search(text)
    return match[1] if match else ""


def _installed() -> Optional[pathlib.Path]:
    """A supported Spack from ``$SPACK_ROOT`` or PATH."""
    candidates = [os.environ.get("SPACK_ROOT", "")]
    program = shutil.which("spack")
    if program:
        candidates.append(str(pathlib.Path(program).resolve().parents[1]))
    for candidate in filter(None, candidates):
        if pinned().pairs_of(version(pathlib.Path(candidate))):
            return pathlib.Path(candidate).resolve()
    return None


def _pair(root: Optional[pathlib.Path], packages: Optional[pathlib.Path], name: str) -> Pair:
    """The supported pair with that Spack, those packages and that name, where they are given."""
    versions = pinned()
    if name and not root:
        return versions.pair(name)
    pairs: Sequence[Pair] = versions.pairs
    if root:
        found = version(root)
        pairs = versions.pairs_of(found)
        if not pairs:
            supported = ", ".join(sorted({pair.spack.version for pair in versions.pairs}))
            raise HvdError(
                f"Spack {found or '?'} at {root} is not supported",
                f"use Spack {supported}, or leave --spack out to have one cloned",
            )
        pairs = [pair for pair in pairs if name in ("", pair.name)]
        if not pairs:
            raise HvdError(
                f"Spack {found} at {root} is not that of the pair '{name}'", versions.choices()
            )
    if not packages:
        return pairs[0]
    commit = clone.commit(packages)
    for pair in pairs:
        if pair.packages.commit == commit:
            return pair
    raise HvdError(
        f"the packages at {packages} are at commit {commit[:12] or '?'}, which is not supported",
        "check out one of " + ", ".join(pair.packages.version for pair in pairs),
    )


def _cached(kind: str, address: str, pin: Pin, log: pathlib.Path) -> pathlib.Path:
    destination = paths.cache() / kind / pin.commit
    clone.ensure(address, pin, destination, log)
    return destination
