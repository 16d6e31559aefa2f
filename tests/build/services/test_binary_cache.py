"""Push what Spack built to a signed cache, and install it on a second machine; or be refused.

The second machine is a second checkout, at a longer path, with a keyring of its own and the same
externals.
"""

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from tests.build import oci
from tests.build.caching import (
    Machine,
    blob,
    flip,
    manifest,
    step_seconds,
    two_ranks,
    without_signature,
)
from tests.conftest import copy_checkout, unmet

#: What `local-hvd` installs that runs: for a build there is more.
PACKAGES = {"gcc-runtime", "py-horovod", "python-venv"}


@pytest.fixture(scope="module")
def rings(request):
    if not shutil.which("gpg"):
        unmet(request.config, "services", "gpg is not on PATH")
    with tempfile.TemporaryDirectory(prefix="hvd-") as scratch:
        yield pathlib.Path(scratch)
        for home in pathlib.Path(scratch).iterdir():
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"])


@pytest.fixture(scope="module")
def first(built_by_spack, rings):
    """The machine that has built it."""
    root = built_by_spack.checkout.root
    python = root / ".hvd" / "frameworks" / "pytorch" / "bin" / "python"
    return Machine(built_by_spack.checkout, rings / "first", python)


@pytest.fixture(scope="module")
def pushed(first, tmp_path_factory):
    """A cache with what was built, and the fingerprint of the key that signed it."""
    status, said = first.cache("key", "--name=Build Team", "--email=build@example.org")
    assert status == 0, said
    fingerprint = said.split()[-1]
    url = tmp_path_factory.mktemp("cache") / "cache"
    status, said = first.cache("push", "local-hvd", f"--url={url}")
    assert status == 0, said
    assert f"signed with {fingerprint}" in said
    return url, fingerprint


@pytest.fixture(scope="module")
def second(first, rings, tmp_path_factory):
    """A machine that has not, with a solution for the same externals."""
    place = (
        tmp_path_factory.mktemp("second") / "a-directory-with-a-much-longer-path" / "of-its-own"
    )
    machine = Machine(copy_checkout(place / "hvd"), rings / "second", first.python)
    (pair,) = (path.name for path in first.checkout.root.glob(".hvd/spack-*"))
    arguments = ("concretize", "local-hvd", f"--python={first.python}", f"--pair={pair}")
    done = machine.checkout.hvd(*arguments)
    assert done.returncode == 0, done.stdout
    return machine


def listed(machine, url, *options):
    """Package to its state, as ``./hvd cache list`` has them."""
    status, said = machine.cache("list", "local-hvd", f"--url={url}", *options)
    rows = [line.split() for line in said.splitlines() if "@" in line.split(" ")[0]]
    assert rows, said
    return status, {row[0].partition("@")[0]: row[1] for row in rows}


@pytest.fixture(scope="module")
def trusting(pushed, second):
    """The second machine, when it has been told whom to trust."""
    url, fingerprint = pushed
    assert listed(second, url) == (1, dict.fromkeys(PACKAGES, "untrusted"))
    said = second.install(url)
    assert "signed with a key that is not trusted" in said and "hint" in said
    assert second.installed == set()
    other = fingerprint[:-1] + ("0" if fingerprint[-1] != "0" else "1")
    status, said = second.cache("trust", other, f"--url={url}")
    assert status == 15 and f"offers no key {other}, but {fingerprint}" in said
    assert second.cache("key") == (0, "")
    status, said = second.cache("trust", fingerprint, f"--url={url}")
    assert status == 0, said
    return second


def test_what_was_tampered_with_is_refused_and_nothing_is_left(pushed, trusting, tmp_path):
    url = tmp_path / "cache"
    shutil.copytree(pushed[0], url)
    # a bit of a tarball; what was signed, under another's name: one with a hole, say; no signature
    file = blob(url, "py-horovod", ".tar")
    flip(file, file.stat().st_size // 2)
    manifest(url, "python-venv").write_text(manifest(url, "gcc-runtime").read_text())
    without_signature(url, "gcc-runtime")
    states = {"py-horovod": "changed", "python-venv": "changed", "gcc-runtime": "unsigned"}
    assert listed(trusting, url, "--verify") == (1, states)
    said = trusting.install(url)
    assert "py-horovod@0.28.1/" in said and "is not what was signed" in said and file.name in said
    assert "2 others cannot be used either; nothing was installed" in said
    assert trusting.installed == set()


def test_a_forged_checksum_and_what_is_gone(pushed, trusting, tmp_path):
    url = tmp_path / "cache"
    shutil.copytree(pushed[0], url)
    # another tarball, with its own checksum in the text that was signed
    text = manifest(url, "python-venv").read_text()
    old = blob(url, "python-venv", ".tar").name
    manifest(url, "python-venv").write_text(text.replace(old, "0" * 64))
    blob(url, "gcc-runtime", ".tar").unlink()
    manifest(url, "py-horovod").unlink()
    states = {"py-horovod": "missing", "python-venv": "changed", "gcc-runtime": "missing"}
    assert listed(trusting, url, "--verify") == (1, states)
    # what was forged is told before what is missing; without that, what the index knows
    manifest(url, "python-venv").write_text(text)
    said = trusting.install(url)
    assert "py-horovod@0.28.1/" in said and "is not in the cache" in said
    assert "though its index says so" in said
    assert trusting.installed == set()


def test_an_installation_that_fails_half_way_leaves_nothing(pushed, trusting, tmp_path):
    """Signed, and yet it cannot be unpacked: the last package of three is none of Spack's."""
    url = tmp_path / "cache"
    shutil.copytree(pushed[0], url)
    environment = {**os.environ, "GNUPGHOME": str(trusting.keyring.with_name("first"))}
    file = blob(url, "py-horovod", ".tar")
    file.write_bytes(gzip.compress(b"no tarball", mtime=0))
    sum_ = subprocess.run(["sha256sum", file], capture_output=True, text=True).stdout.split()[0]
    target = manifest(url, "py-horovod")
    text = target.read_text()
    text = text[text.index("{") : text.rindex("}") + 1].replace(file.name, sum_)
    content = json.loads(text)
    plain = tmp_path / "manifest.json"
    plain.write_text(json.dumps(content, indent=0))
    subprocess.run(
        ["gpg", "--batch", "--yes", "--clearsign", "--output", target, plain],
        env=environment,
        check=True,
    )
    moved = file.with_name(sum_)
    place = url / "blobs" / "sha256" / sum_[:2] / sum_
    place.parent.mkdir(parents=True, exist_ok=True)
    file.rename(moved)
    moved.rename(place)
    said = trusting.install(url)
    assert "could not be installed" in said and "nothing of it is left" in said
    assert trusting.installed == set()


def test_a_second_machine_installs_it_and_runs_on_two_ranks(
    pushed, first, trusting, record_property
):
    pair = next(trusting.checkout.root.glob(".hvd/spack-*")).name
    where = (f"--url={pushed[0]}", f"--python={trusting.python}", f"--pair={pair}")
    status, said = trusting.cache("pull", "local-hvd", *where)
    assert status == 0, said
    assert trusting.installed == PACKAGES
    seconds = sum(step_seconds(said, name) for name in ("signatures", "spack install"))
    record_property("seconds to install from the cache", seconds)
    library = next(trusting.checkout.root.glob(".hvd/spack-*/opt/*/py-horovod*/**/mpi_lib_v2*.so"))
    # where it was compiled is in its debugging information; where it was installed, nowhere
    (before,) = first.checkout.root.glob(".hvd/spack-*/opt")
    assert str(before).encode() not in library.read_bytes()
    two_ranks(trusting.checkout)


def test_a_container_registry(request, first, second, tmp_path):
    """Spack signs nothing there, which has to be said."""
    with oci.registry(request.config, tmp_path) as url:
        status, said = first.cache("push", "local-hvd", f"--url={url}")
        assert status == 2 and "signs no packages in a container registry" in said
        status, said = first.cache("push", "local-hvd", f"--url={url}", "--unsigned")
        assert status == 0, said
        assert listed(second, url) == (1, dict.fromkeys(PACKAGES, "unsigned"))
        assert listed(second, url, "--unsigned", "--verify")[0] == 0
