"""A repository with its history, and the bisection of it."""

from __future__ import annotations

import pathlib
from typing import List

import pytest

from hvd.core.errors import HvdError
from hvd.fetch.history import History
from tests.checkout import commit, git, run


class Origin:
    """A repository whose commits each write a line into its file."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        run(["git", "init", "--quiet", "--initial-branch=develop", root])
        self.commits: List[str] = []

    def git(self, *words: object) -> str:
        return git(self.root, *words)

    def commit(self, text: str) -> str:
        (self.root / "file").write_text(text)
        self.commits.append(commit(self.root, text))
        return self.commits[-1]


@pytest.fixture
def origin(tmp_path) -> Origin:
    found = Origin(tmp_path / "origin")
    for number in range(9):
        found.commit(f"good {number}" if number < 6 else f"bad {number}")
    return found


@pytest.fixture
def history(origin, tmp_path) -> History:
    return History(str(origin.root), tmp_path / "cache" / "history")


def test_the_newest_commit_is_that_of_the_default_branch(origin, history):
    origin.git("branch", "other", "HEAD~3")
    newest = history.fetch(origin.commits[0])
    assert (newest.id, newest.subject) == (origin.commits[-1], "bad 8")
    assert history.between(origin.commits[0], newest.id) == 8
    later = origin.commit("bad 9")
    assert history.fetch(origin.commits[0]).id == later


def test_the_first_bad_commit_is_found_in_a_few_steps(origin, history, tmp_path):
    newest = history.fetch(origin.commits[0])
    tree = tmp_path / "tree"
    history.checkout(newest.id, tree)
    judged = []

    def is_good() -> bool:
        judged.append(history.commit_of(tree))
        return (tree / "file").read_text().startswith("good")

    found = history.first_bad(origin.commits[0], newest.id, tree, is_good)
    assert found and (found.id, found.subject) == (origin.commits[6], "bad 6")
    assert len(judged) <= 3
    # once more: nothing is left of the bisection
    assert history.first_bad(origin.commits[0], newest.id, tree, is_good) == found
    assert history.commit_of(tree) == newest.id


def test_a_pinned_release_may_be_on_a_branch(origin, history, tmp_path):
    """As Spack's releases are: it begins at a commit that is good, or is bad and fixed there."""
    tree = tmp_path / "tree"
    origin.git("checkout", "--quiet", "-b", "release", origin.commits[2])
    good = origin.commit("good on the branch")
    origin.git("checkout", "--quiet", "develop")
    newest = history.fetch(good)
    history.checkout(newest.id, tree)

    def is_good() -> bool:
        return (tree / "file").read_text().startswith("good")

    found = history.first_bad(good, newest.id, tree, is_good)
    assert found and found.subject == "bad 6"

    origin.git("checkout", "--quiet", "-b", "mended", "develop~1")
    mended = origin.commit("good again")
    origin.git("checkout", "--quiet", "develop")
    history.fetch(mended)
    assert history.first_bad(mended, newest.id, tree, is_good) is None
    # nothing is left of that one either
    found = history.first_bad(good, newest.id, tree, is_good)
    assert found and found.subject == "bad 6"


def test_an_address_that_cannot_be_reached_is_named(origin, history, tmp_path):
    with pytest.raises(HvdError, match="/no/such/repository: git fetch"):
        History("/no/such/repository", tmp_path / "other").fetch()
    with pytest.raises(HvdError, match="git fetch"):
        history.fetch("f" * 40)
