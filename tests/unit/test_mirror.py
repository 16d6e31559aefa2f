"""mirror: sources get their place, or an error that names it."""

import hashlib
import subprocess

import pytest

from hvd.core.errors import HvdError
from hvd.fetch import mirror, python_index
from hvd.fetch.mirror import Source
from tests.checkout import commit, git

SHA256 = "9" * 64
RELEASE = (
    "http://127.0.0.1:9/o/compiler-wrapper/releases/download/v1.1.0/compiler-wrapper-1.1.0.tar.gz"
)


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
    monkeypatch.setattr(python_index, "fetch", lambda *words: asked.append(words))
    wanted = source()
    assert mirror.fill([wanted], tmp_path, {}, tmp_path / "log") == 1
    assert asked == [("horovod", "horovod-0.28.1.tar.gz", SHA256, tmp_path / wanted.path)]


def test_what_is_there_or_local_is_not_fetched(tmp_path):
    here = source(url="http://127.0.0.1:9/x")
    (tmp_path / here.path).parent.mkdir(parents=True)
    (tmp_path / here.path).write_bytes(b"")
    local = source(url="file:///packages/compiler_wrapper/cc.sh", path="cc")
    assert mirror.fill([here, local], tmp_path, {}, tmp_path / "log") == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sha256": "", "url": ""}, "no sha256"),
        ({"url": "http://127.0.0.1:9/libyaml-0.2.5.tar.gz"}, "http://127.0.0.1:9/libyaml"),
    ],
)
def test_a_source_that_cannot_be_had_is_named(tmp_path, changes, said):
    with pytest.raises(HvdError, match=f"py-horovod@0.28.1.*{said}"):
        mirror.fill([source(**changes)], tmp_path, {}, tmp_path / "log")
    assert not (tmp_path / source().path).exists()


def test_a_release_is_made_from_its_tag_where_it_cannot_be_downloaded(tmp_path):
    root = tmp_path / "compiler-wrapper"
    root.mkdir()
    (root / "cc.sh").write_text("#!/bin/sh\n")
    commit(root)
    git(root, "tag", "v1.1.0")
    archive = f"git -C {root} archive --format=tar --prefix=compiler-wrapper-1.1.0/ v1.1.0"
    packed = subprocess.run(f"{archive} | gzip -n", shell=True, check=True, capture_output=True)
    sha256 = hashlib.sha256(packed.stdout).hexdigest()
    wanted = source(url=RELEASE, sha256=sha256, path="a/wrapper.tar.gz")
    where = (tmp_path / "mirror", {"compiler-wrapper": str(root)}, tmp_path / "log")
    assert mirror.fill([wanted], *where) == 1
    assert python_index.digest(tmp_path / "mirror" / wanted.path) == sha256
    # another checksum than the recipe's
    with pytest.raises(HvdError, match="with the checksum of the recipe"):
        mirror.fill([source(url=RELEASE, path="b.tar.gz")], *where)
    assert not (tmp_path / "mirror" / "b.tar.gz").exists()
