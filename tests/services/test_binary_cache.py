"""Push what Spack built to a signed cache, and install it on a second machine; or be refused.

The second machine is a second checkout, at a longer path, with a keyring of its own and the same
externals.
"""

import gzip
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from hvd.smoke.launch import small_machine
from tests import needs, ranks
from tests.checkout import copy_checkout, run
from tests.real_builds import target
from tests.services import oci
from tests.services.caching import Machine, manifest, step_seconds, tarball, unsigned

pytestmark = [pytest.mark.xdist_group("built"), needs.programs("gpg")]

#: What `local-hvd` installs that runs: for a build there is more.
PACKAGES = {"gcc-runtime", "py-horovod", "python-venv"}


@pytest.fixture(scope="module")
def rings():
    with tempfile.TemporaryDirectory(prefix="hvd-") as scratch:
        yield pathlib.Path(scratch)
        for home in pathlib.Path(scratch).iterdir():
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"])


@pytest.fixture(scope="module")
def first(built_by_spack, rings):
    """The machine that has built it."""
    checkout = built_by_spack.checkout
    python = checkout.state / "frameworks" / "pytorch" / "bin" / "python"
    return Machine(checkout, rings / "first", python)


@pytest.fixture(scope="module")
def pushed(first, tmp_path_factory):
    """A cache with what was built, and the fingerprint of the key that signed it."""
    said = first.cache("key", "--name=Build Team", "--email=build@example.org")
    fingerprint = said.split()[-1]
    url = tmp_path_factory.mktemp("cache") / "cache"
    said = first.cache("push", "local-hvd", f"--url={url}")
    assert f"signed with {fingerprint}" in said
    return url, fingerprint


@pytest.fixture
def cache(pushed, tmp_path):
    """A copy of the cache, to be tampered with."""
    return shutil.copytree(pushed[0], tmp_path / "cache")


@pytest.fixture(scope="module")
def externals(first):
    """Options for the same Spack and the same externals as those of the first machine."""
    return f"--python={first.python}", f"--pair={first.opt.parent.name}"


@pytest.fixture(scope="module")
def second(first, rings, externals, tmp_path_factory):
    """A machine that has not, with a solution for the same externals."""
    place = (
        tmp_path_factory.mktemp("second") / "a-directory-with-a-much-longer-path" / "of-its-own"
    )
    machine = Machine(copy_checkout(place / "hvd"), rings / "second", first.python)
    machine.checkout.hvd("concretize", "local-hvd", *externals)
    return machine


def listed(machine, url, *options, status=1):
    """Package to its state, as ``./hvd cache list`` has them."""
    said = machine.cache("list", "local-hvd", f"--url={url}", *options, status=status)
    rows = [line.split() for line in said.splitlines() if "@" in line.split(" ")[0]]
    assert rows, said
    return {row[0].partition("@")[0]: row[1] for row in rows}


@pytest.fixture(scope="module")
def trusting(pushed, second):
    """The second machine, when it has been told whom to trust."""
    url, fingerprint = pushed
    assert listed(second, url) == dict.fromkeys(PACKAGES, "untrusted")
    said = second.install(url)
    assert "signed with a key that is not trusted" in said and "hint" in said
    assert second.installed == set()
    other = fingerprint[:-1] + ("0" if fingerprint[-1] != "0" else "1")
    said = second.cache("trust", other, f"--url={url}", status=15)
    assert f"offers no key {other}, but {fingerprint}" in said
    assert second.cache("key") == ""
    second.cache("trust", fingerprint, f"--url={url}")
    return second


def test_what_was_tampered_with_is_refused_and_nothing_is_left(cache, trusting):
    # a bit of a tarball; what was signed, under another's name: one with a hole, say; no signature
    file = tarball(cache, "py-horovod")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    manifest(cache, "python-venv").write_text(manifest(cache, "gcc-runtime").read_text())
    manifest(cache, "gcc-runtime").write_text(unsigned(cache, "gcc-runtime"))
    states = {"py-horovod": "changed", "python-venv": "changed", "gcc-runtime": "unsigned"}
    assert listed(trusting, cache, "--verify") == states
    said = trusting.install(cache)
    assert "py-horovod@0.28.1/" in said and "is not what was signed" in said and file.name in said
    assert "2 others cannot be used either; nothing was installed" in said
    assert trusting.installed == set()


def test_a_forged_checksum_and_what_is_gone(cache, trusting):
    # another tarball, with its own checksum in the text that was signed
    text = manifest(cache, "python-venv").read_text()
    old = tarball(cache, "python-venv").name
    manifest(cache, "python-venv").write_text(text.replace(old, "0" * 64))
    tarball(cache, "gcc-runtime").unlink()
    manifest(cache, "py-horovod").unlink()
    states = {"py-horovod": "missing", "python-venv": "changed", "gcc-runtime": "missing"}
    assert listed(trusting, cache, "--verify") == states
    # what was forged is told before what is missing; without that, what the index knows
    manifest(cache, "python-venv").write_text(text)
    said = trusting.install(cache)
    assert "py-horovod@0.28.1/" in said and "is not in the cache" in said
    assert "though its index says so" in said
    assert trusting.installed == set()


def test_an_installation_that_fails_half_way_leaves_nothing(cache, trusting, tmp_path):
    """Signed, and yet it cannot be unpacked: the last package of three is none of Spack's."""
    old = tarball(cache, "py-horovod")
    content = gzip.compress(b"no tarball", mtime=0)
    total = hashlib.sha256(content).hexdigest()
    plain = tmp_path / "manifest.json"
    plain.write_text(unsigned(cache, "py-horovod").replace(old.name, total))
    ring = trusting.keyring.with_name("first")
    sign = ["gpg", "--batch", "--yes", "--clearsign", "--output", manifest(cache, "py-horovod")]
    run([*sign, plain], env={**os.environ, "GNUPGHOME": str(ring)})
    new = tarball(cache, "py-horovod")
    new.parent.mkdir(parents=True, exist_ok=True)
    new.write_bytes(content)
    old.unlink()
    said = trusting.install(cache)
    assert "could not be installed" in said and "nothing of it is left" in said
    assert trusting.installed == set()


def test_a_second_machine_installs_it_and_runs_on_two_ranks(
    pushed, first, trusting, externals, record_property
):
    said = trusting.cache("pull", "local-hvd", f"--url={pushed[0]}", *externals)
    assert trusting.installed == PACKAGES
    seconds = sum(step_seconds(said, name) for name in ("signatures", "spack install"))
    record_property("seconds to install from the cache", seconds)
    library = next(trusting.opt.glob("*/py-horovod*/**/mpi_lib_v2*.so"))
    # where it was compiled is in its debugging information; where it was installed, nowhere
    assert str(first.opt).encode() not in library.read_bytes()
    horovod = target(trusting.checkout.state / "built" / "local-hvd-spack.json")
    command = ["mpirun", "--oversubscribe", "-np", "2", "python", "-c", ranks.PROGRAM]
    output = run(command, env={**horovod.environment, **small_machine()}, timeout=120)
    assert ranks.said(output) == [(0, 2), (1, 2)], output


def test_a_container_registry(first, second, tmp_path):
    """Spack signs nothing there, which has to be said."""
    with oci.registry(tmp_path) as url:
        said = first.cache("push", "local-hvd", f"--url={url}", status=2)
        assert "signs no packages in a container registry" in said
        first.cache("push", "local-hvd", f"--url={url}", "--unsigned")
        assert listed(second, url) == dict.fromkeys(PACKAGES, "unsigned")
        listed(second, url, "--unsigned", "--verify", status=0)
