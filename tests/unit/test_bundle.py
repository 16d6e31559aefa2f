"""Bundles: packing, and what install.sh refuses; tests/bundle installs one."""

import os
import sys
import tarfile

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.deliver import bundle as bundles
from tests.checkout import commit, git, run

WHEEL = "wheels/a-1.0-py3-none-any.whl"
SOURCE = "sources/archive/ab/abc.tar.gz"
FACTS = {
    "COMMAND": "smoke local-hvd --spec 'py-horovod +mpi'",
    "PYTHON": f"{sys.version_info.major}.{sys.version_info.minor}",
}


def make(destination, **facts):
    """A small bundle; returns the checksum of its checksums."""
    with bundles.gathering(destination) as directory:
        for name in (WHEEL, SOURCE):
            (directory / name).parent.mkdir(parents=True)
            (directory / name).write_bytes(name.encode() * 100)
        return bundles.seal(directory, {**FACTS, **facts})


@pytest.fixture
def bundle(tmp_path):
    make(tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.fixture
def prefix(tmp_path):
    return tmp_path / "prefix"


def install(bundle, *arguments, status=2, **variables):
    """Output of install.sh."""
    return run(["sh", bundle / "install.sh", *arguments], status, env={**os.environ, **variables})


@pytest.mark.parametrize("name", [WHEEL, "bundle.env", "install.sh", "SHA256SUMS"])
def test_a_changed_bit_is_named_and_nothing_is_installed(bundle, prefix, name):
    content = bytearray((bundle / name).read_bytes())
    content[7] ^= 1
    (bundle / name).write_bytes(content)
    said = install(bundle, "--prefix", prefix)
    assert (WHEEL in said) == (name == WHEEL) and "nothing was installed" in said
    assert SOURCE not in said and not prefix.exists()


def test_what_was_added_or_removed_is_named(bundle):
    (bundle / "wheels" / "evil-9.whl").write_text("x")
    assert "wheels/evil-9.whl" in install(bundle, "--check")
    (bundle / "wheels" / "evil-9.whl").rename(bundle / "wheels" / "a b")
    assert "nothing was installed" in install(bundle, "--check")
    (bundle / "wheels" / "a b").unlink()
    (bundle / "wheels" / "link").symlink_to("/usr")
    assert "wheels/link" in install(bundle, "--check")
    (bundle / "wheels" / "link").unlink()
    install(bundle, "--check", status=0)
    (bundle / WHEEL).unlink()
    assert WHEEL in install(bundle, "--check")


@pytest.mark.parametrize(("python", "machine"), [("3.99", ""), (FACTS["PYTHON"], "vax")])
def test_another_machine_is_refused(tmp_path, prefix, monkeypatch, python, machine):
    monkeypatch.setattr(bundles.platform, "machine", lambda: machine or os.uname().machine)
    make(tmp_path / "bundle", PYTHON=python)
    said = install(tmp_path / "bundle", "--prefix", prefix)
    assert (machine or python) in said and not prefix.exists()


def test_wrong_usage_and_a_prefix_that_cannot_be_used(bundle, prefix, tmp_path):
    for words in ([], ["--prefix"], ["--nonsense"]):
        assert "usage" in install(bundle, *words)
    (prefix / "hvd").mkdir(parents=True)
    assert f"{prefix}/hvd" in install(bundle, "--prefix", prefix)
    assert os.listdir(prefix) == ["hvd"]
    install(bundle, "--prefix", tmp_path / "with blank")
    assert not (tmp_path / "with blank").exists()


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ([], "smoke|local-hvd|--spec|py-horovod +mpi"),
        (["--engine=pip", "--build-only"], "build|local-hvd|--spec|py-horovod +mpi|--engine=pip"),
        (["--python", "/a b"], "smoke|local-hvd|--spec|py-horovod +mpi|--python|/a b"),
    ],
)
def test_it_ends_with_the_command_and_the_users_options(tmp_path, prefix, words, passed):
    (tmp_path / "hvd").mkdir()
    (tmp_path / "hvd" / "hvd").write_text("import sys; print(*sys.argv[1:], sep='|')")
    commit(tmp_path / "hvd")
    with bundles.gathering(tmp_path / "kit") as directory:
        for name in ("sources", "wheels"):
            (directory / name).mkdir()
        run(["git", "clone", "--quiet", "--bare", tmp_path / "hvd", directory / "git" / "hvd.git"])
        bundles.seal(directory, FACTS)
    said = install(tmp_path / "kit", *words, "--prefix", prefix, status=0)
    assert passed in said.splitlines()
    assert f"PIP_FIND_LINKS='{prefix}/wheels'" in (prefix / "env.sh").read_text()


def test_an_archive_has_one_directory(tmp_path):
    digest = make(tmp_path / "hvd-1.tar")
    assert os.listdir(tmp_path) == ["hvd-1.tar"]
    with tarfile.open(tmp_path / "hvd-1.tar") as archive:
        archive.extractall(tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["hvd-1"]
    install(tmp_path / "out" / "hvd-1", "--check", status=0)
    assert run(["sha256sum", tmp_path / "out" / "hvd-1" / "SHA256SUMS"]).split()[0] == digest


def test_nothing_is_overwritten_and_no_half_bundle_is_left(tmp_path):
    (tmp_path / "there").write_text("mine")
    with pytest.raises(HvdError, match=str(tmp_path / "there")):
        make(tmp_path / "there")
    with pytest.raises(KeyboardInterrupt), bundles.gathering(tmp_path / "new"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == ["there"]


def test_only_a_commit_is_bundled(monkeypatch, hvd, tmp_path):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    # refused before anything is done
    assert hvd("bundle", "--to", tmp_path / "bundle").status == 2 and not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("x")
    assert commit(tmp_path) == bundles.commit() == git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "other").write_text("x")
    with pytest.raises(HvdError, match="other$"):
        bundles.commit()
