"""The keyring, and errors about a cache; Spack's part is in tests/services."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from hvd.cache import cache, keyring
from hvd.cache.cache import Package
from hvd.core import paths, process
from hvd.core.errors import HvdError
from tests.unit.test_diff import LOCK


@pytest.fixture
def ring(monkeypatch):
    """An empty keyring, at a path that is short enough for its sockets."""
    if not shutil.which("gpg"):
        pytest.skip("gpg is not on PATH")
    process.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="hvd-") as scratch:
        monkeypatch.setenv(paths.KEYRING_VARIABLE, str(pathlib.Path(scratch, "one")))
        yield pathlib.Path(scratch)
        for home in pathlib.Path(scratch).iterdir():
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"])


def test_a_key_is_made_exported_and_trusted(ring, monkeypatch, tmp_path):
    key = keyring.create("Build Team", "build@example.org")
    assert keyring.is_fingerprint(key.fingerprint) and key.secret
    assert keyring.signing() == keyring.signing("build@") == keyring.signing(key.fingerprint[-8:])
    keyring.export(key.fingerprint, tmp_path / "public")
    assert (ring / "one").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv(paths.KEYRING_VARIABLE, str(ring / "two"))
    assert keyring.keys() == []
    with pytest.raises(HvdError, match="and not 0000"):
        keyring.add(tmp_path / "public", "0" * 40)
    assert keyring.keys() == []
    (added,) = keyring.add(tmp_path / "public", key.fingerprint)
    assert (added.owner, added.secret) == ("Build Team <build@example.org>", False)
    with pytest.raises(HvdError, match="no key to sign with"):
        keyring.signing()


def test_which_key_signs_must_be_clear(ring):
    keyring.create("One", "one@example.org")
    two = keyring.create("Two", "two@example.org")
    assert keyring.signing("two@") == two
    for wanted in ("", "example.org", "three"):
        with pytest.raises(HvdError) as raised:
            keyring.signing(wanted)
        assert two.fingerprint in raised.value.remedy


@pytest.mark.parametrize("content", [None, "x"])
def test_a_file_without_a_key_is_refused(ring, tmp_path, content):
    if content:
        (tmp_path / "file").write_text(content)
    with pytest.raises(HvdError, match=str(tmp_path / "file")):
        keyring.add(tmp_path / "file")


def test_without_gpg_the_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HvdError, match="gpg is not on PATH") as raised:
        keyring.keys()
    assert "gnupg" in raised.value.remedy


def test_a_path_too_long_for_sockets_is_refused(ring, monkeypatch, tmp_path):
    """Where there is no /run/user: gpg itself would report a failed connection."""
    gpgconf = tmp_path / "bin" / "gpgconf"
    gpgconf.parent.mkdir()
    gpgconf.write_text("#!/bin/sh\nexit 1\n")
    gpgconf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gpgconf.parent}:{os.environ['PATH']}")
    with pytest.raises(HvdError) as raised:
        keyring.keys(ring / ("x" * 90))
    assert paths.KEYRING_VARIABLE in raised.value.remedy
    assert keyring.keys(ring / "short") == []


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("/sw/cache/", "file:///sw/cache"),
        ("file:///sw/cache", "file:///sw/cache"),
        ("oci+http://localhost:5000/x", "oci+http://localhost:5000/x"),
        ("relative", pathlib.Path("relative").absolute().as_uri()),
    ],
)
def test_a_cache_is_named_by_address_or_directory(text, url):
    assert cache.named(text).url == url


def test_which_key_a_cache_needs():
    unsigned = cache.named("/sw", unsigned=True)
    assert cache.fingerprint(unsigned, "") == ""
    with pytest.raises(HvdError, match="--unsigned"):
        cache.fingerprint(unsigned, "ABC")
    with pytest.raises(HvdError, match="oci://registry.example.org/x"):
        cache.fingerprint(cache.named("oci://registry.example.org/x"), "")


def package(name, state, installed=False, detail=""):
    file = f"file:///sw/{name}.json"
    return Package(name, "1.0", "aaaaaaaaaa", installed, state, file, detail)


def refusal(*packages, near=None):
    with pytest.raises(HvdError) as raised:
        cache.require(cache.named("/sw"), list(packages), near or {}, LOCK, None)
    assert raised.value.message.endswith("nothing was installed") and raised.value.remedy
    return raised.value.message


def test_what_is_good_or_installed_needs_nothing():
    good = [package("a", "good"), package("b", "missing", installed=True)]
    cache.require(cache.named("/sw"), good, {}, LOCK, None)


@pytest.mark.parametrize("state", ["unsigned", "untrusted", "expired", "revoked", "changed"])
def test_each_problem_names_the_package_and_the_file(state):
    message = refusal(package("a", "missing"), package("b", state, detail="ABCDEF"))
    assert message.startswith("b@1.0/aaaaaaa is ")
    assert "file:///sw/b.json (ABCDEF); 1 other cannot" in message


def test_what_is_missing_is_compared_with_what_there_is():
    """The usual difference: an external at another place, which is part of a package's hash."""
    missing = package("py-horovod", "missing")
    other = {key: dict(value) for key, value in LOCK.items()}
    other["cccccccccc"]["external"] = {"path": "/opt/torch", "module": None}
    assert "py-torch: from /opt/torch, here" in refusal(missing, near={"aaaaaaaaaa": [other]})
    assert "its index says so" in refusal(missing, near={"aaaaaaaaaa": [LOCK]})


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["pull", "--url", ""], "--url"),
        (["push", "nowhere-hvd", "--url", "/x"], "'nowhere-hvd'"),
        (["key", "--name", "N", "--add", "x"], "--name and --add"),
        (["key", "--name", "N"], "--email"),
        (["trust", "/nowhere/key"], "/nowhere/key"),
    ],
)
def test_wrong_usage(hvd, arguments, named):
    done = hvd("cache", *arguments)
    assert done.status == 2 and named in done.err
