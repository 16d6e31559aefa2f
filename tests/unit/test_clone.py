"""clone: a pinned commit is there whole, or not at all."""

import pytest

from hvd.core.errors import HvdError
from hvd.fetch import clone
from hvd.model.versions import Pin
from tests.checkout import commit


@pytest.fixture
def repository(tmp_path):
    """A repository of two commits; the first one is what is pinned."""
    root = tmp_path / "spack"
    root.mkdir()
    commits = []
    for text in ("one", "two"):
        (root / "file").write_text(text)
        commits.append(commit(root))
    return root, Pin("1.2", commits[0])


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
    assert clone.commit(tmp_path / "x") == ""


@pytest.mark.parametrize(
    ("address", "commit"),
    [("/no/such/repository", ""), ("https://127.0.0.1:9/spack.git", ""), ("", "f" * 40)],
)
def test_what_cannot_be_fetched_leaves_nothing(repository, tmp_path, address, commit):
    root, pin = repository
    wanted = Pin("1.2", commit or pin.commit)
    with pytest.raises(HvdError) as caught:
        clone.ensure(address or str(root), wanted, tmp_path / "cache" / "x", tmp_path / "log")
    assert address in caught.value.message and wanted.commit[:12] in caught.value.message
    assert list((tmp_path / "cache").iterdir()) == []
