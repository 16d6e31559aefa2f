"""Copies and worktrees of this checkout, to work in without a change to it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Dict, Iterable, Iterator, List

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.fetch import clone

#: Seconds for one command of git, gpg or gh.
_TIMEOUT = 300


def copy(destination: pathlib.Path) -> None:
    """Make ``destination`` a copy of what git tracks, or would track, as it is now.

    What ``./hvd`` has made below its ``.hvd`` is kept.

    Raises:
        HvdError: this checkout is none of git's.
    """
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = git(paths.ROOT, *words, remedy="use a clone of this repository, made by git")
    destination.mkdir(parents=True, exist_ok=True)
    for path in destination.iterdir():
        if path.name != ".hvd":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in filter(None, names.split("\0")):
        source, target = paths.ROOT / name, destination / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


@contextlib.contextmanager
def worktree(place: pathlib.Path, commit: str, remedy: str) -> Iterator[None]:
    """Check ``commit`` out in ``place`` until the end of the block.

    Raises:
        HvdError: git refused; carries ``remedy``.
    """
    git(paths.ROOT, "worktree", "add", "--quiet", "--detach", place, commit, remedy=remedy)
    try:
        yield
    finally:
        git(paths.ROOT, "worktree", "remove", "--force", place, remedy=remedy)


def git(directory: pathlib.Path, *words: object, remedy: str) -> str:
    """Run git in ``directory``; see :func:`run`."""
    return run(["git", *words], directory, remedy)


def run(command: Iterable[object], directory: pathlib.Path, remedy: str) -> str:
    """Run a command in ``directory``, and return what it prints to standard output.

    Raises:
        HvdError: it fails; carries ``remedy``.
    """
    words = list(map(str, command))
    done = subprocess.run(
        words,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        env={**os.environ, **clone.UNATTENDED, "GH_PROMPT_DISABLED": "1"},
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        raise HvdError(f"`{' '.join(words[:6])} ...` failed: {said}", remedy)
    return done.stdout


def command(*arguments: object) -> List[str]:
    """Return the command line of ``./hvd`` in a copy."""
    return [sys.executable, "-m", "hvd", *map(str, arguments)]


def variables(root: pathlib.Path) -> Dict[str, str]:
    """Return the environment for :func:`command` in the copy ``root``, whose state is its own."""
    own = {name: value for name, value in os.environ.items() if name != "HVD_STATE"}
    return {**own, "PYTHONPATH": str(root / "ci" / "src"), "PYTHONNOUSERSITE": "1"}
