"""The keyring, and what is said of a cache; Spack's part is in tests/build."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from hvd.cache import cache, keyring, transfer
from hvd.cache.cache import Package
from hvd.cli import main as cli
from hvd.core import paths, process
from hvd.core.errors import HvdError
from tests.conftest import unmet
from tests.unit.test_diff import LOCK


@pytest.fixture
def ring(request, monkeypatch):
    """An empty keyring, at a path that is short enough for its sockets."""
    if not shutil.which("gpg"):
        unmet(request.config, "build", "gpg is not on PATH")
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
    for wanted, said in (("", "several keys"), ("example.org", "several"), ("three", "no key")):
        with pytest.raises(HvdError, match=said) as raised:
            keyring.signing(wanted)
        assert two.fingerprint in raised.value.remedy


@pytest.mark.parametrize(("content", "said"), [(None, "there is no"), ("x", "has no key in it")])
def test_a_file_without_a_key_is_refused(ring, tmp_path, content, said):
    if content:
        (tmp_path / "file").write_text(content)
    with pytest.raises(HvdError, match=said):
        keyring.add(tmp_path / "file")


def test_without_gpg_the_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HvdError, match="gpg is not on PATH") as raised:
        keyring.keys()
    assert "gnupg" in raised.value.remedy


def test_a_path_too_long_for_sockets_is_refused(ring, monkeypatch, tmp_path):
    """Where there is no /run/user: gpg itself would say that a connection failed."""
    gpgconf = tmp_path / "bin" / "gpgconf"
    gpgconf.parent.mkdir()
    gpgconf.write_text("#!/bin/sh\nexit 1\n")
    gpgconf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gpgconf.parent}:{os.environ['PATH']}")
    with pytest.raises(HvdError, match="too long a path for the sockets"):
        keyring.keys(ring / ("x" * 90))
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


def test_no_cache_and_no_signature_are_refused():
    with pytest.raises(HvdError, match="no binary cache is named"):
        cache.named("")
    with pytest.raises(HvdError, match="signs no packages in a container registry"):
        transfer.fingerprint(cache.named("oci://registry.example.org/x"), "")
    with pytest.raises(HvdError, match="exclude each other"):
        transfer.fingerprint(cache.named("/sw", unsigned=True), "ABC")
    assert transfer.fingerprint(cache.named("/sw", unsigned=True), "") == ""


def package(name, state, installed=False, detail="", hash_="aaaaaaaaaa"):
    return Package(name, "1.0", hash_, installed, state, f"file:///sw/{name}.json", detail)


def refusal(*packages, near=None):
    with pytest.raises(HvdError) as raised:
        cache.require(cache.named("/sw"), list(packages), near or {}, LOCK, None)
    return raised.value


def test_what_is_good_or_installed_needs_nothing():
    good = [package("a", "good"), package("b", "missing", installed=True)]
    cache.require(cache.named("/sw"), good, {}, LOCK, None)


@pytest.mark.parametrize("state", ["unsigned", "untrusted", "expired", "revoked", "changed"])
def test_each_problem_names_the_file_and_a_way_out(state):
    error = refusal(package("a", "missing"), package("b", state, detail="ABCDEF"))
    assert error.message.startswith("b@1.0/aaaaaaa is ")
    assert "file:///sw/b.json (ABCDEF); 1 other cannot" in error.message
    assert error.message.endswith("nothing was installed") and error.remedy


def test_what_is_missing_is_compared_with_what_there_is():
    """The usual reason: externals at another place, which are part of a package's hash."""
    other = {key: dict(value) for key, value in LOCK.items()}
    other["cccccccccc"]["external"] = {"path": "/opt/torch", "module": None}
    error = refusal(package("py-horovod", "missing"), near={"aaaaaaaaaa": [other]})
    assert (
        "is not in the cache file:///sw, but there is one with py-torch: from /opt/torch, here"
        in (error.message)
    )
    assert "--python" in error.remedy
    error = refusal(package("py-horovod", "missing"), near={"aaaaaaaaaa": [LOCK]})
    assert "is not in the cache file:///sw, though its index says so; nothing" in error.message


def test_wrong_usage(capsys):
    for arguments, said in (
        (["pull", "--url", ""], "no binary cache is named"),
        (["push", "nowhere-hvd", "--url", "/x"], "no environment is called 'nowhere-hvd'"),
        (["key", "--name", "N", "--add", "x"], "exclude each other"),
        (["key", "--name", "N"], "is no owner of a key"),
        (["trust", "/nowhere/key"], "there is no /nowhere/key"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(["cache", *arguments])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
