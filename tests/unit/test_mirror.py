"""mirror: sources get their place, or an error that names it."""

import hashlib
import subprocess

import pytest

from hvd.core.errors import HvdError
from hvd.fetch import mirror, python_index
from hvd.fetch.mirror import Source
from tests.checkout import commit, git

SHA256 = "9" * 64


def source(**changes):
    values = {
        "name": "py-horovod",
        "version": "0.28.1",
        "url": "https://example.org/packages/source/h/horovod/horovod-0.28.1.tar.gz",
        "sha256": SHA256,
        "path": f"_source-cache/archive/99/{SHA256}.tar.gz",
    }
    return Source(**{**values, **changes})


def test_a_distribution_comes_by_name_from_the_python_index(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        python_index,
        "fetch",
        lambda project, file, sha256, to: asked.append((project, file, sha256, to)),
    )
    wanted = source()
    assert mirror.fill([wanted], tmp_path, {}, tmp_path / "log") == 1
    assert asked == [("horovod", "horovod-0.28.1.tar.gz", SHA256, tmp_path / wanted.path)]


def test_what_is_there_or_local_is_not_fetched(tmp_path, monkeypatch):
    def fetch(*_):
        raise AssertionError("fetched")

    monkeypatch.setattr(python_index, "fetch", fetch)
    here = source()
    (tmp_path / here.path).parent.mkdir(parents=True)
    (tmp_path / here.path).write_bytes(b"")
    local = source(url="file:///packages/compiler_wrapper/cc.sh", path="cc")
    assert mirror.fill([here, local], tmp_path, {}, tmp_path / "log") == 0


def test_a_source_without_checksum_is_refused(tmp_path):
    with pytest.raises(HvdError) as caught:
        mirror.fill([source(sha256="", url="")], tmp_path, {}, tmp_path / "log")
    assert "py-horovod@0.28.1" in caught.value.message and "no sha256" in caught.value.message


def test_an_unreachable_source_names_the_place_to_put_it(tmp_path):
    wanted = source(name="libyaml", url="http://127.0.0.1:9/libyaml-0.2.5.tar.gz")
    with pytest.raises(HvdError) as caught:
        mirror.fill([wanted], tmp_path, {}, tmp_path / "log")
    assert "libyaml@0.28.1: http://127.0.0.1:9/libyaml" in caught.value.message
    assert str(tmp_path / wanted.path) in caught.value.remedy


@pytest.fixture
def repository(tmp_path):
    """A git repository with a tag, and the sha256 of the tag's release tarball."""
    root = tmp_path / "compiler-wrapper"
    root.mkdir()
    (root / "cc.sh").write_text("#!/bin/sh\n")
    commit(root)
    git(root, "tag", "v1.1.0")
    archive = f"git -C {root} archive --format=tar --prefix=compiler-wrapper-1.1.0/ v1.1.0"
    packed = subprocess.run(f"{archive} | gzip -n", shell=True, check=True, capture_output=True)
    return root, hashlib.sha256(packed.stdout).hexdigest()


RELEASE = (
    "http://127.0.0.1:9/o/compiler-wrapper/releases/download/v1.1.0/compiler-wrapper-1.1.0.tar.gz"
)


def test_a_release_is_made_from_its_tag_where_it_cannot_be_downloaded(tmp_path, repository):
    root, sha256 = repository
    wanted = source(name="compiler-wrapper", url=RELEASE, sha256=sha256, path="a/wrapper.tar.gz")
    addresses = {"compiler-wrapper": str(root)}
    assert mirror.fill([wanted], tmp_path / "mirror", addresses, tmp_path / "log") == 1
    assert python_index.digest(tmp_path / "mirror" / wanted.path) == sha256


def test_a_tag_that_is_not_the_release_is_refused(tmp_path, repository):
    root, _ = repository
    wanted = source(name="compiler-wrapper", url=RELEASE, path="a/wrapper.tar.gz")
    with pytest.raises(HvdError) as caught:
        mirror.fill(
            [wanted], tmp_path / "mirror", {"compiler-wrapper": str(root)}, tmp_path / "log"
        )
    assert "is not the released file" in caught.value.message
    assert not (tmp_path / "mirror" / wanted.path).exists()
