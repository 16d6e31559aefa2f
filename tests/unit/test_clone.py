"""clone: a pinned commit is there whole, or not at all."""

import subprocess

import pytest

from hvd.core.errors import HvdError
from hvd.fetch import clone
from hvd.model.versions import Pin


@pytest.fixture
def repository(tmp_path):
    """A repository of two commits; the first one is what is pinned."""
    root = tmp_path / "spack"
    git = ["git", "-C", root, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "init", "--quiet", root], check=True)
    for text in ("one", "two"):
        (root / "file").write_text(text)
        subprocess.run([*git, "add", "file"], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", text], check=True)
    ask = ["git", "-C", root, "rev-parse", "HEAD~1"]
    pinned = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    return root, Pin("1.2", pinned)


def test_the_pinned_commit_is_checked_out(repository, tmp_path):
    root, pin = repository
    clone.ensure(str(root), pin, tmp_path / "cache" / "x", tmp_path / "log")
    assert (tmp_path / "cache" / "x" / "file").read_text() == "one"
    assert clone.commit(tmp_path / "cache" / "x") == pin.commit


def test_what_is_there_is_kept(repository, tmp_path):
    _, pin = repository
    (tmp_path / "x").mkdir()
    clone.ensure("/no/such/repository", pin, tmp_path / "x", tmp_path / "log")
    assert list((tmp_path / "x").iterdir()) == []


@pytest.mark.parametrize("address", ["/no/such/repository", "https://127.0.0.1:9/spack.git"])
def test_an_address_that_cannot_be_reached_leaves_nothing(repository, tmp_path, address):
    _, pin = repository
    with pytest.raises(HvdError) as caught:
        clone.ensure(address, pin, tmp_path / "cache" / "x", tmp_path / "log")
    assert address in caught.value.message and pin.commit[:12] in caught.value.message
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_commit_that_is_not_there_leaves_nothing(repository, tmp_path):
    root, _ = repository
    with pytest.raises(HvdError):
        clone.ensure(str(root), Pin("9", "f" * 40), tmp_path / "cache" / "x", tmp_path / "log")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_directory_that_is_no_checkout_has_no_commit(tmp_path):
    assert clone.commit(tmp_path) == ""


def test_the_references_of_a_repository(repository, tmp_path):
    root, pin = repository
    git = ["git", "-C", root, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "tag", "-a", "-m", "x", "v1", pin.commit], check=True)
    found = clone.references(str(root), "HEAD", "refs/tags/v*")
    # an annotated tag stands for its commit
    assert found == {"HEAD": clone.commit(root), "refs/tags/v1": pin.commit}
    with pytest.raises(HvdError, match="/no/such/repository"):
        clone.references("/no/such/repository")
