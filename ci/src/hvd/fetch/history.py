"""A repository with its history: the newest commit, and the first one where something fails."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shutil
from typing import Callable, Optional

from hvd.core.errors import HvdError
from hvd.fetch import clone

#: The branch that the address has checked out, as it is kept here.
_NEWEST = "refs/hvd/newest"
#: What serves a directory, as public servers do.
_UPLOAD = "git -c uploadpack.allowFilter=true -c uploadpack.allowAnySHA1InWant=true upload-pack"
_FIRST_BAD = re.compile(r"^([0-9a-f]{40}) is the first bad commit", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Commit:
    """A commit, its date (ISO 8601) and the first line of its message."""

    id: str
    date: str
    subject: str


@dataclasses.dataclass(frozen=True)
class History:
    """A bare repository below the cache, and one checkout of it for each use.

    Args:
        address: where it comes from; a path or an address of git's.
        place: where it is kept.
    """

    address: str
    place: pathlib.Path

    def fetch(self, *commits: str) -> Commit:
        """Bring the default branch and ``commits`` up to date, and return the newest commit.

        Files come when they are checked out, where the server can do that.

        Raises:
            HvdError: the address cannot be reached, or does not have one of the commits.
        """
        self.place.mkdir(parents=True, exist_ok=True)
        self._git("init", "--quiet", "--bare")
        local = pathlib.Path(self.address).expanduser()
        settings = {"url": self.address, "promisor": "true", "partialclonefilter": "blob:none"}
        if local.is_dir():
            # a server allows what a directory does not
            settings["url"] = str(local.absolute())
            settings["uploadpack"] = _UPLOAD
        for name, value in settings.items():
            self._git("config", f"remote.origin.{name}", value)
        wanted = [f"+HEAD:{_NEWEST}", *(f"+{each}:refs/hvd/{each}" for each in commits)]
        self._git("fetch", "--quiet", "--no-tags", "--filter=blob:none", "origin", *wanted)
        return self.commit(_NEWEST)

    def commit(self, name: str) -> Commit:
        """Return the commit called ``name``."""
        return Commit(*self._git("show", "-s", "--format=%H%n%cI%n%s", name).splitlines())

    def commit_of(self, directory: pathlib.Path) -> str:
        """Return the id of the commit that the checkout ``directory`` is at."""
        return self._git("rev-parse", "HEAD", within=directory).strip()

    def between(self, good: str, bad: str) -> int:
        """Return the number of commits that ``bad`` has and ``good`` has not."""
        return int(self._git("rev-list", "--count", "--first-parent", f"{good}..{bad}"))

    def checkout(self, commit: str, directory: pathlib.Path) -> None:
        """Put ``commit`` into ``directory``; files that it has already keep their times.

        Raises:
            HvdError: the files cannot be fetched.
        """
        if not (directory / ".git").exists():
            shutil.rmtree(directory, ignore_errors=True)
            self._git("worktree", "prune")
            self._git("worktree", "add", "--quiet", "--detach", directory, commit)
        self._git("checkout", "--quiet", "--force", "--detach", commit, within=directory)

    def first_bad(
        self, good: str, bad: str, directory: pathlib.Path, is_good: Callable[[], bool]
    ) -> Optional[Commit]:
        """Bisect with git: return the first commit that is not good.

        Args:
            directory: a checkout of :meth:`checkout`; has the commit that is to be judged.
            is_good: judges it.

        Returns:
            None if the commit that both ends come from is not good either: it was fixed on the
            way to ``good`` alone.
        """
        self._git("bisect", "start", "--first-parent", bad, good, within=directory)
        try:
            while True:
                word = "good" if is_good() else "bad"
                output = self._git("bisect", word, within=directory, statuses=(0, 3))
                if "The merge base" in output and " is bad" in output:
                    return None
                found = _FIRST_BAD.search(output)
                if found:
                    return self.commit(found[1])
        finally:
            self._git("bisect", "reset", bad, within=directory)

    def _git(
        self, *words: object, within: Optional[pathlib.Path] = None, statuses: tuple = (0,)
    ) -> str:
        done = clone.git(*words, within=within or self.place)
        output = done.stdout + done.stderr
        if done.returncode not in statuses:
            raise HvdError(
                f"{self.address}: git {words[0]}: {output.strip()}",
                "check the address and the network, or give another one; see ./hvd canary --help",
            )
        return output
