"""A release: one commit with its version, a tag, and files to hand out with their checksums."""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import re
import shutil
import tempfile
from typing import Sequence

from packaging.version import InvalidVersion, Version

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.core.run import Task
from hvd.deliver import bundle
from hvd.model.versions import Pair, pinned
from hvd.upkeep import checkout

CHANGELOG = pathlib.Path("CHANGELOG.md")
CITATION = pathlib.Path("CITATION.cff")
PROJECT = pathlib.Path("ci", "pyproject.toml")
#: The signature of the checksums.
SIGNATURE = f"{bundle.SUMS}.asc"
_UNRELEASED = "## Unreleased"
_TESTED = re.compile(r"^Tested with [^\n]*\n(?:[^\n]+\n)*", re.MULTILINE)
#: Seconds for a bundle, which may download gigabytes.
_TIMEOUT = 6 * 3600
_NOTHING = "nothing is released; set what it asks for, and try again"


@dataclasses.dataclass(frozen=True)
class Release:
    """A version that is not released yet.

    Args:
        commit: the commit that the release comes after.
        key: the releaser's key, in their own keyring; empty to sign nothing.
    """

    version: str
    date: str
    commit: str
    key: str = ""

    @property
    def tag(self) -> str:
        return f"v{self.version}"


def plan(version: str, key: str = "") -> Release:
    """Return the release of ``version`` from this checkout.

    Raises:
        HvdError: the version is not one of three numbers, is not later than the last release, or
            the checkout has changes; nothing has been released since.
    """
    try:
        known = Version(version)
    except InvalidVersion:
        known = None
    if known is None or not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise HvdError(f"'{version}' is no version", "give three numbers, such as 0.2.0")
    tags = _git(paths.ROOT, "tag", "--list", "v*").split()
    released = [Version(tag) for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    if released and known <= max(released):
        raise HvdError(
            f"{max(released)} is released already", "give a later version; see docs/releases.md"
        )
    if _UNRELEASED not in (paths.ROOT / CHANGELOG).read_text():
        raise HvdError(
            f"{CHANGELOG} has no section '{_UNRELEASED}'", "add it, and write what has changed"
        )
    return Release(version, datetime.date.today().isoformat(), bundle.commit(), key)


def make(release: Release, bundles: Sequence[str], directory: pathlib.Path, task: Task) -> None:
    """Commit and tag the release, and write its files to ``directory``: all, or nothing.

    Args:
        bundles: environments to pack for machines without a network.

    Raises:
        HvdError: git or gpg refused, a bundle failed, or ``directory`` exists.
    """
    if directory.exists():
        raise HvdError(f"{directory} is there already", "remove it, or name another with --to")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=directory.parent) as scratch:
        tree, files = pathlib.Path(scratch, "tree"), pathlib.Path(scratch, "out")
        files.mkdir()
        with checkout.worktree(tree, release.commit, _NOTHING):
            commit = _commit(release, tree)
            name = f"hvd-{release.version}"
            archive = ("archive", f"--prefix={name}/", "-o", files / f"{name}.tar.gz", commit)
            _git(paths.ROOT, *archive)
            for each in bundles:
                task.say(f"bundle of {each}")
                command = checkout.command("bundle", each, "--to", files / f"{name}-{each}.tar")
                variables = checkout.variables(tree)
                process.run(command, log=task.log, cwd=tree, env=variables, timeout=_TIMEOUT)
            bundle.write_sums(files)
            if release.key:
                _sign(release.key, files)
            _tag(release, commit, tree)
            try:
                _git(paths.ROOT, "merge", "--quiet", "--ff-only", commit)
            except HvdError:
                _git(paths.ROOT, "tag", "--delete", release.tag)
                raise
        os.rename(files, directory)


def section(text: str) -> str:
    """Return what the CHANGELOG ``text`` says of the newest version, without its title."""
    return text.split("\n## ")[1].partition("\n")[2].strip()


def tested(pairs: Sequence[Pair]) -> str:
    """Return the paragraph with the pairs that a release was tested with."""
    named = [
        f"Spack {pair.spack.version} ({pair.spack.commit[:8]}) with packages "
        f"{pair.packages.version} ({pair.packages.commit[:8]})"
        for pair in pairs
    ]
    api = re.search(r"api: (v[\d.]+)", (paths.ROOT / "repo.yaml").read_text())
    assert api
    lines = [f"Tested with {named[0]},", *(f"{each}," for each in named[1:])]
    return "\n".join(lines) + f"\nPackage API {api[1]}.\n"


def _commit(release: Release, tree: pathlib.Path) -> str:
    """Write the version into the files that have it, and commit them."""
    changelog = (tree / CHANGELOG).read_text()
    title = f"## {release.version} ({release.date})"
    begin, _, rest = changelog.partition(_UNRELEASED)
    current, separator, before = rest.partition("\n## ")
    current, count = _TESTED.subn(tested(pinned().pairs), current, count=1)
    if not count:
        current = f"\n\n{tested(pinned().pairs)}{current.lstrip()}"
    (tree / CHANGELOG).write_text(f"{begin}{title}{current}{separator}{before}")
    _replace(tree / CITATION, r"^version: .*$", f"version: {release.version}")
    _replace(tree / CITATION, r"^date-released: .*$", f'date-released: "{release.date}"')
    _replace(tree / PROJECT, r'^version = ".*"$', f'version = "{release.version}"')
    _git(tree, "commit", "--quiet", "--all", "-m", f"ci: release {release.version}")
    return _git(tree, "rev-parse", "HEAD").strip()


def _replace(file: pathlib.Path, pattern: str, line: str) -> None:
    text, count = re.subn(pattern, line, file.read_text(), count=1, flags=re.MULTILINE)
    if not count:
        raise HvdError(f"{file.name}: no line is like '{line}'", "restore it from git")
    file.write_text(text)


def _sign(key: str, files: pathlib.Path) -> None:
    if not shutil.which("gpg"):
        raise HvdError("gpg is not on PATH", "install it: the package gnupg")
    words = ["--local-user", key, "--armor", "--detach-sign", "--output", SIGNATURE, bundle.SUMS]
    checkout.run(["gpg", *words], files, _NOTHING)


def _tag(release: Release, commit: str, tree: pathlib.Path) -> None:
    kind = ["--sign", "--local-user", release.key] if release.key else ["--annotate"]
    text = f"hvd {release.version}\n\n{section((tree / CHANGELOG).read_text())}\n"
    # headings begin with what git takes for a comment
    _git(tree, "tag", *kind, "--cleanup=verbatim", "-m", text, release.tag, commit)


def _git(directory: pathlib.Path, *words: object) -> str:
    return checkout.git(directory, *words, remedy=_NOTHING)
