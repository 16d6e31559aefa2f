"""Commands, and copies of this checkout to run them in."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any, Callable, Iterable, Optional

from hvd.core import paths


def run(command: Iterable[object], status: Optional[int] = 0, **keywords: object) -> str:
    """Run a command to its end and return its output, standard error included.

    Args:
        status: the exit status that is expected; None for any.
        keywords: arguments of :func:`subprocess.run`.

    Raises:
        AssertionError: it exits with another status.
    """
    done = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **keywords,
    )
    assert status in (None, done.returncode), f"exit status {done.returncode}:\n{done.stdout}"
    return done.stdout


def script(path: pathlib.Path, *lines: str, interpreter: str = "/bin/sh") -> pathlib.Path:
    """Write an executable script, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([f"#!{interpreter}", *lines, ""]))
    path.chmod(0o755)
    return path


def git(root: pathlib.Path, *words: object) -> str:
    """Run git in ``root``, as a user who can commit; see :func:`run`."""
    settings = ["user.name=t", "user.email=t@example.org"]
    # in the background it would move objects while somebody clones
    settings.append("gc.auto=0")
    options = [word for each in settings for word in ("-c", each)]
    return run(["git", "-C", root, *options, *words]).strip()


def commit(root: pathlib.Path, message: str = "x") -> str:
    """Commit all that is in ``root``, a git repository from then on; return the commit."""
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(root, "rev-parse", "HEAD")


def wait_for(what: Callable[[], Any], within: float, state: Callable[[], object]) -> Any:
    """Return what ``what`` returns, as soon as that is true.

    Raises:
        AssertionError: it is not within that many seconds; has the ``state`` by then.
    """
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"nothing within {within:.0f} s: {state()}")


@dataclasses.dataclass(frozen=True)
class Checkout:
    """A copy of this checkout with its own ``.hvd``, run by this process's Python."""

    root: pathlib.Path

    @property
    def state(self) -> pathlib.Path:
        return self.root / ".hvd"

    def command(self, *arguments: object) -> list:
        return [sys.executable, "-m", "hvd", *map(str, arguments)]

    def environment(self, **changes: str) -> dict:
        """This process's environment for the copy, which keeps its state below it."""
        own = {name: value for name, value in os.environ.items() if name != "HVD_STATE"}
        return {**own, "PYTHONPATH": str(self.root / "ci" / "src"), **changes}

    def hvd(self, *arguments: object, status: int = 0, **changes: str) -> str:
        """Run ``./hvd`` in the copy; see :func:`run`."""
        return self.run(self.command(*arguments), status, **changes)

    def shell(self, program: str) -> str:
        """Run lines of bash in the copy, with its Spack set up; see :func:`run`."""
        return self.run(["bash", "-c", f". {self.state}/setup-env.sh && {program}"])

    def run(self, command: Iterable[object], status: int = 0, **changes: str) -> str:
        """Run ``command`` in the copy with changed variables; see :func:`run`."""
        return run(command, status, cwd=self.root, env=self.environment(**changes))


def copy_checkout(destination: pathlib.Path) -> Checkout:
    """Copy what git tracks, or would track, to ``destination``."""
    listed = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, git(paths.ROOT, *listed).split("\0")):
        source, target = paths.ROOT / name, destination / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return Checkout(destination)
