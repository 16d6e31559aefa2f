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
import sys
import tempfile

import pytest

from tests.build import oci
from tests.conftest import Checkout, copy_checkout, unmet

#: What `local-hvd` installs that runs: for a build there is more.
PACKAGES = {"gcc-runtime", "py-horovod", "python-venv"}
#: Seconds that a second machine may take to install it.
LIMIT = 30.0
#: What `./hvd cache pull` does when the environment is set up and solved.
INSTALL = """
import sys
from hvd import environment, process
from hvd.buildcache import cache, transfer
from hvd.engine_spack import SpackEngine, pair_of
from hvd.run import Run
from hvd.spack import Sources
process.adopt_orphans()
subject = environment.load("local-hvd")
engine = SpackEngine(subject, Sources(pair=pair_of(subject)))
run = Run("local-hvd", "spack")
with run.stage("build"):
    with run.step("Spack") as task:
        engine.locate(task)
    transfer.install(engine.spack, subject, engine.solution(), cache.named(sys.argv[1]), run)
"""
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

    def install(self, url):
        """Output of an installation from the cache ``url`` that is refused."""
        command = [sys.executable, "-c", INSTALL, str(url)]
        done = self.checkout.run(command, SPACK_GNUPGHOME=str(self.keyring))
        assert done.returncode != 0 and "error: " in done.stdout, done.stdout
        return done.stdout

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
    assert "signed with a key that is not trusted" in said and "way out" in said
    assert second.installed == set()
    other = fingerprint[:-1] + ("0" if fingerprint[-1] != "0" else "1")
    status, said = second.cache("trust", other, f"--url={url}")
    assert status == 15 and f"offers no key {other}, but {fingerprint}" in said
    assert second.cache("key") == (0, "")
    status, said = second.cache("trust", fingerprint, f"--url={url}")
    assert status == 0, said
    return second


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


def without_signature(url, name):
    """The same contents, and no word of who says so."""
    file = manifest(url, name)
    text = file.read_text()
    file.write_text(text[text.index("{") : text.rindex("}") + 1])


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
    assert seconds < LIMIT
    library = next(trusting.checkout.root.glob(".hvd/spack-*/opt/*/py-horovod*/**/mpi_lib_v2*.so"))
    assert str(first.checkout.root / ".hvd" / "spack").encode() not in library.read_bytes()
    two_ranks(trusting.checkout)


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


def test_a_container_registry(request, first, second, tmp_path):
    """Spack signs nothing there, which has to be said."""
    with oci.registry(request.config, tmp_path) as url:
        status, said = first.cache("push", "local-hvd", f"--url={url}")
        assert status == 2 and "signs no packages in a container registry" in said
        status, said = first.cache("push", "local-hvd", f"--url={url}", "--unsigned")
        assert status == 0, said
        assert listed(second, url) == (1, dict.fromkeys(PACKAGES, "unsigned"))
        assert listed(second, url, "--unsigned", "--verify")[0] == 0
