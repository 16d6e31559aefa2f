"""A release: one commit with its version, a tag, and files to hand out with their checksums."""

from __future__ import annotations

import datetime
import os
import pathlib
import re
import shutil
import tempfile
from typing import Sequence

from packaging.version import Version

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.core.steps import Step
from hvd.deliver import bundle
from hvd.model.versions import pinned
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


def check(version: str) -> str:
    """Check that ``version`` can be released from this checkout.

    Returns:
        The commit that the release comes after.

    Raises:
        HvdError: the version is not one of three numbers, is not later than the last release, or
            the checkout has changes; nothing has been released since.
    """
    three = re.compile(r"\d+\.\d+\.\d+")
    if not three.fullmatch(version):
        raise HvdError(f"'{version}' is no version", "give three numbers, such as 0.2.0")
    tags = _git(paths.ROOT, "tag", "--list", "v*").split()
    last = max((Version(tag) for tag in tags if three.fullmatch(tag[1:])), default=None)
    if last and Version(version) <= last:
        raise HvdError(f"{last} is released already", "give a later version; see docs/releases.md")
    if _UNRELEASED not in (paths.ROOT / CHANGELOG).read_text():
        problem = f"{CHANGELOG} has no section '{_UNRELEASED}'"
        raise HvdError(problem, "add it, and write what has changed")
    return bundle.commit()


def make(
    version: str,
    after: str,
    key: str,
    bundles: Sequence[str],
    added: Sequence[pathlib.Path],
    directory: pathlib.Path,
    task: Step,
) -> None:
    """Commit and tag a release, and write its files to ``directory``: all, or nothing.

    Args:
        after: the commit that it comes after, of :func:`check`.
        key: the releaser's key, in their own keyring; empty to sign nothing.
        bundles: environments to pack for machines without a network.
        added: files to copy, such as wheels.

    Raises:
        HvdError: git or gpg refused, a bundle failed, a file cannot be copied, or ``directory``
            exists.
    """
    if directory.exists():
        raise HvdError(f"{directory} is there already", "remove it, or name another with --to")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=directory.parent) as scratch:
        tree, files = pathlib.Path(scratch, "tree"), pathlib.Path(scratch, "out")
        files.mkdir()
        with checkout.worktree(tree, after, _NOTHING):
            commit = _commit(version, tree)
            name = f"hvd-{version}"
            archive = ("archive", f"--prefix={name}/", "-o", files / f"{name}.tar.gz", commit)
            _git(paths.ROOT, *archive)
            for each in added:
                _copy(each, files)
            for each in bundles:
                task.say(f"bundle of {each}")
                command = checkout.command("bundle", each, "--to", files / f"{name}-{each}.tar")
                variables = checkout.variables(tree)
                process.run(command, log=task.log, cwd=tree, env=variables, timeout=_TIMEOUT)
            bundle.write_sums(files)
            if key:
                _sign(key, files)
            kind = ["--sign", "--local-user", key] if key else ["--annotate"]
            section = (tree / CHANGELOG).read_text().split("\n## ")[1].partition("\n")[2]
            text = f"hvd {version}\n\n{section.strip()}\n"
            # headings begin with what git takes for a comment
            words = (*kind, "--cleanup=verbatim", "-m", text, f"v{version}", commit)
            _git(tree, "tag", *words)
            try:
                _git(paths.ROOT, "merge", "--quiet", "--ff-only", commit)
            except HvdError:
                _git(paths.ROOT, "tag", "--delete", f"v{version}")
                raise
        os.rename(files, directory)


def _copy(file: pathlib.Path, directory: pathlib.Path) -> None:
    if (directory / file.name).exists():
        raise HvdError(f"two files have the name {file.name}", "rename one, and try again")
    try:
        shutil.copyfile(file, directory / file.name)
    except OSError as error:
        raise HvdError(f"cannot copy {file}: {error.strerror}", _NOTHING) from error


def _commit(version: str, tree: pathlib.Path) -> str:
    """Write the version into the files that have it, and commit them."""
    changelog = (tree / CHANGELOG).read_text()
    today = datetime.date.today().isoformat()
    title = f"## {version} ({today})"
    begin, _, rest = changelog.partition(_UNRELEASED)
    current, separator, before = rest.partition("\n## ")
    current, count = _TESTED.subn(_tested(), current, count=1)
    if not count:
        current = f"\n\n{_tested()}{current.lstrip()}"
    (tree / CHANGELOG).write_text(f"{begin}{title}{current}{separator}{before}")
    _replace(tree / CITATION, r"^version: .*$", f"version: {version}")
    _replace(tree / CITATION, r"^date-released: .*$", f'date-released: "{today}"')
    _replace(tree / PROJECT, r'^version = ".*"$', f'version = "{version}"')
    _git(tree, "commit", "--quiet", "--all", "-m", f"ci: release {version}")
    return _git(tree, "rev-parse", "HEAD").strip()


def _tested() -> str:
    """The paragraph with the pairs that a release was tested with."""
    pairs = ",\n".join(
        f"Spack {pair.spack.version} ({pair.spack.commit[:8]}) with packages "
        f"{pair.packages.version} ({pair.packages.commit[:8]})"
        for pair in pinned().pairs
    )
    api = re.search(r"api: (v[\d.]+)", (paths.ROOT / "repo.yaml").read_text())
    return f"Tested with {pairs},\nPackage API {api[1]}.\n"


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


def _git(directory: pathlib.Path, *words: object) -> str:
    return checkout.git(directory, *words, remedy=_NOTHING)
