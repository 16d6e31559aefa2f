"""Push what Spack built to a signed cache, and install it on a second machine; or be refused.

The second machine is a second checkout, at a longer path, with a keyring of its own and the same
externals.
"""

import dataclasses
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import pytest

from tests.build import oci
from tests.conftest import Checkout, copy_checkout, unmet

#: What `local-hvd` installs that runs: for a build there is more.
PACKAGES = {"gcc-runtime", "py-horovod", "python-venv"}
#: Seconds that a second machine may take to install it.
LIMIT = 30.0
PROGRAM = """
import horovod.torch as hvd, os, torch
hvd.init()
total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum).item()
os.write(1, f"rank {hvd.rank()} of {hvd.size()} sum {total}\\n".encode())
"""


@dataclasses.dataclass
class Machine:
    """A checkout with a keyring, and the interpreter that its frameworks are from."""

    checkout: Checkout
    keyring: pathlib.Path
    python: pathlib.Path

    def cache(self, command, *arguments):
        """Status and output of ``./hvd cache``."""
        done = self.checkout.hvd(
            "cache", command, *arguments, SPACK_GNUPGHOME=str(self.keyring), HVD_CACHE=""
        )
        return done.returncode, done.stdout

    @property
    def installed(self):
        """Names of the packages that are installed, by what is there and by Spack's database."""
        (tree,) = self.checkout.root.glob(".hvd/spack-*/opt")
        there = {
            json.loads(file.read_text())["spec"]["nodes"][0]["name"]
            for file in tree.glob("*/*/.spack/spec.json")
        }
        index = tree / ".spack-db" / "index.json"
        known = json.loads(index.read_text())["database"]["installs"] if index.exists() else {}
        names = {
            record["spec"]["name"]
            for record in known.values()
            if record["installed"] and "external" not in record["spec"]
        }
        assert there == names
        return names


@pytest.fixture(scope="module")
def rings(request):
    if not shutil.which("gpg"):
        unmet(request.config, "build", "gpg is not on PATH")
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


def pull(machine, url, *options):
    pair = next(machine.checkout.root.glob(".hvd/spack-*")).name
    where = (f"--url={url}", f"--python={machine.python}", f"--pair={pair}")
    return machine.cache("pull", "local-hvd", *where, *options)


def test_a_key_that_nobody_trusts_installs_nothing(pushed, second):
    url, fingerprint = pushed
    assert listed(second, url) == (1, dict.fromkeys(PACKAGES, "untrusted"))
    status, said = pull(second, url)
    assert status == 12, said
    assert "signed with a key that is not trusted" in said and "way out" in said
    assert second.installed == set()
    other = fingerprint[:-1] + ("0" if fingerprint[-1] != "0" else "1")
    status, said = second.cache("trust", other, f"--url={url}")
    assert status == 15 and f"offers no key {other}, but {fingerprint}" in said
    assert second.cache("key") == (0, "")
    status, said = second.cache("trust", fingerprint, f"--url={url}")
    assert status == 0, said
    assert listed(second, url) == (0, dict.fromkeys(PACKAGES, "good"))


def manifest(url, name):
    (file,) = url.glob(f"v3/manifests/spec/{name}/*.json")
    return file


def blob(url, name, media):
    """The file of a package with the contents that are called ``media``."""
    text = manifest(url, name).read_text()
    record = next(
        each
        for each in json.loads(text[text.index("{") : text.rindex("}") + 1])["data"]
        if media in each["mediaType"]
    )
    return (
        url / "blobs" / record["checksumAlgorithm"] / record["checksum"][:2] / record["checksum"]
    )


def flip(file, position):
    changed = bytearray(file.read_bytes())
    changed[position] ^= 1
    file.write_bytes(changed)


def tampered_package(url):
    """A bit of the tarball, in the middle."""
    file = blob(url, "py-horovod", ".tar")
    flip(file, file.stat().st_size // 2)
    return "changed", file.name


def another_package(url):
    """What was signed, under another's name: an older Horovod with a hole, say."""
    target = manifest(url, "py-horovod")
    target.write_text(manifest(url, "python-venv").read_text())
    return "changed", target.name


def without_signature(url):
    """The same contents, and no word of who says so."""
    file = manifest(url, "py-horovod")
    text = file.read_text()
    file.write_text(text[text.index("{") : text.rindex("}") + 1])
    return "unsigned", file.name


def another_checksum(url):
    """A malicious tarball with its own checksum in the signed text."""
    file = manifest(url, "py-horovod")
    old = blob(url, "py-horovod", ".tar").name
    evil = "0" * 64
    file.write_text(file.read_text().replace(old, evil))
    return "changed", file.name


def gone(url):
    """An entry whose tarball was deleted."""
    file = blob(url, "gcc-runtime", ".tar")
    file.unlink()
    return "missing", file.name


@pytest.mark.parametrize(
    "tamper", [tampered_package, another_package, without_signature, another_checksum, gone]
)
def test_what_was_tampered_with_is_seen(pushed, second, tmp_path, tamper):
    test = test_a_key_that_nobody_trusts_installs_nothing
    assert second.cache("key")[1].count("trusted") == 1, f"{test.__name__} comes first"
    url = tmp_path / "cache"
    shutil.copytree(pushed[0], url)
    state, _ = tamper(url)
    status, found = listed(second, url, "--verify")
    assert status == 1
    bad = {name: each for name, each in found.items() if each != "good"}
    assert list(bad.values()) == [state]


def test_a_tampered_tarball_is_refused_and_nothing_is_left(pushed, second, tmp_path):
    url = tmp_path / "cache"
    shutil.copytree(pushed[0], url)
    _, file = tampered_package(url)
    status, said = pull(second, url)
    assert status == 12, said
    assert "py-horovod@0.28.1/" in said and "is not what was signed" in said and file in said
    assert "nothing was installed" in said
    assert second.installed == set()
    assert not (second.checkout.root / ".hvd" / "built").exists()


def test_a_pull_that_fails_half_way_leaves_nothing(pushed, second, tmp_path):
    """Signed, and yet it cannot be unpacked: the last package of three is none of Spack's."""
    url = tmp_path / "cache"
    shutil.copytree(pushed[0], url)
    environment = {**os.environ, "GNUPGHOME": str(second.keyring.with_name("first"))}
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
    status, said = pull(second, url)
    assert status == 12, said
    assert "could not be installed" in said and "nothing of it is left" in said
    assert second.installed == set()


def test_a_second_machine_installs_it_and_runs_on_two_ranks(
    pushed, first, second, record_property
):
    begin = time.monotonic()
    status, said = pull(second, pushed[0])
    whole = time.monotonic() - begin
    assert status == 0, said
    assert second.installed == PACKAGES
    seconds = sum(step_seconds(said, name) for name in ("signatures", "spack install"))
    report = first.checkout.root / ".hvd" / "reports" / "local-hvd-spack" / "report.json"
    built = next(
        step["seconds"]
        for stage in json.loads(report.read_text())["stages"]
        for step in stage["steps"]
        if step["name"] == "spack install"
    )
    record_property("seconds to install from the cache", seconds)
    record_property("seconds of the whole command", whole)
    record_property("seconds to build, in the run that ended", built)
    assert seconds < LIMIT
    library = next(second.checkout.root.glob(".hvd/spack-*/opt/*/py-horovod*/**/mpi_lib_v2*.so"))
    assert str(first.checkout.root / ".hvd" / "spack").encode() not in library.read_bytes()
    two_ranks(second.checkout)
    done = second.checkout.hvd("build", "local-hvd", f"--python={first.python}", *pair(second))
    assert done.returncode == 0 and "0 fetched, 0 to build" in done.stdout, done.stdout


def pair(machine):
    return [f"--pair={next(machine.checkout.root.glob('.hvd/spack-*')).name}"]


def step_seconds(said, name):
    line = next(line for line in said.splitlines() if line.strip().startswith(name))
    words = line.split()
    return float(words[words.index("s") - 1])


def two_ranks(checkout):
    file = checkout.root / ".hvd" / "built" / "local-hvd-spack.json"
    variables = {**os.environ, **json.loads(file.read_text())["variables"]}
    variables.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(
        ["mpirun", "--oversubscribe", "-np", "2", "python", "-c", PROGRAM],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert {f"rank {rank} of 2 sum 3.0" for rank in (0, 1)} <= set(done.stdout.splitlines())


def test_other_externals_are_told_apart(pushed, first, tmp_path, rings):
    """The usual reason why nothing fits: the same frameworks at another path."""
    python = tmp_path / "venv"
    shutil.copytree(first.python.parents[1], python, symlinks=True, copy_function=os.link)
    machine = Machine(copy_checkout(tmp_path / "hvd"), rings / "second", python / "bin" / "python")
    (name,) = (path.name for path in first.checkout.root.glob(".hvd/spack-*"))
    where = (f"--url={pushed[0]}", f"--python={machine.python}", f"--pair={name}")
    status, said = machine.cache("pull", "local-hvd", *where)
    assert status == 12, said
    assert "py-horovod@0.28.1/" in said and "is not in the cache" in said
    assert "but there is one with" in said and f"from {first.python.parents[1]}, here" in said
    assert machine.installed == set()


def test_a_container_registry(request, first, second, tmp_path):
    """Spack signs nothing there, which has to be said."""
    with oci.registry(request.config, tmp_path) as url:
        status, said = first.cache("push", "local-hvd", f"--url={url}")
        assert status == 2 and "signs no packages in a container registry" in said
        status, said = first.cache("push", "local-hvd", f"--url={url}", "--unsigned")
        assert status == 0, said
        assert listed(second, url) == (1, dict.fromkeys(PACKAGES, "unsigned"))
        assert listed(second, url, "--unsigned", "--verify")[0] == 0
