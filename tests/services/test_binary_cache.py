"""Push what Spack built to a signed cache, and install it on a second machine; or be refused.

The second machine is a second checkout, at a longer path, with a keyring of its own and the same
externals.
"""

import dataclasses
import json
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from hvd.smoke.launch import small_machine
from tests import needs, ranks
from tests.checkout import Checkout, copy_checkout, run
from tests.real_builds import target
from tests.services import oci

pytestmark = needs.programs("gpg")

#: What `local-hvd` installs that runs: for a build there is more.
PACKAGES = {"gcc-runtime", "py-horovod", "python-venv"}


@dataclasses.dataclass
class Machine:
    """A checkout with a keyring, and options for the externals that it shares with others."""

    checkout: Checkout
    keyring: pathlib.Path
    externals: tuple = ()

    def cache(self, command, *arguments, status=0):
        """Output of ``./hvd cache``."""
        variables = {"SPACK_GNUPGHOME": str(self.keyring), "HVD_CACHE": ""}
        words = ("cache", command, "local-hvd", *self.externals, *arguments)
        return self.checkout.hvd(*words, status=status, **variables)

    def gpg(self, command):
        return self.checkout.shell(f"export SPACK_GNUPGHOME={self.keyring} && {command}")

    @property
    def opt(self):
        """Where Spack installs."""
        (tree,) = self.checkout.state.glob("spack-*/opt")
        return tree

    @property
    def installed(self):
        """Names of the packages that are installed."""
        files = self.checkout.state.glob("spack-*/opt/*/*/.spack/spec.json")
        return {json.loads(file.read_text())["spec"]["nodes"][0]["name"] for file in files}


@pytest.fixture(scope="module")
def rings():
    with tempfile.TemporaryDirectory(prefix="hvd-") as scratch:
        yield pathlib.Path(scratch)
        for home in pathlib.Path(scratch).iterdir():
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"])


@pytest.fixture(scope="module")
def first(built_by_spack, rings):
    """The machine that has built it."""
    return Machine(built_by_spack.checkout, rings / "first")


@pytest.fixture(scope="module")
def pushed(first, tmp_path_factory):
    """A cache with what was built, and the public key of those who signed it."""
    place = tmp_path_factory.mktemp("cache")
    first.gpg("spack gpg create 'Build Team' build@example.org")
    first.gpg(f"spack gpg export {place / 'key.asc'}")
    first.cache("push", f"--url={place / 'cache'}")
    return place / "cache", place / "key.asc"


@pytest.fixture
def cache(pushed, tmp_path):
    """A copy of the cache, to be tampered with."""
    return shutil.copytree(pushed[0], tmp_path / "cache")


@pytest.fixture(scope="module")
def second(first, rings, tmp_path_factory):
    """A machine that has built nothing."""
    python = first.checkout.state / "frameworks" / "pytorch" / "bin" / "python"
    externals = (f"--python={python}", f"--pair={first.opt.parent.name}")
    place = (
        tmp_path_factory.mktemp("second") / "a-directory-with-a-much-longer-path" / "of-its-own"
    )
    return Machine(copy_checkout(place / "hvd"), rings / "second", externals)


@pytest.fixture(scope="module")
def trusting(pushed, second):
    """The second machine, when it has been told whom to trust."""
    url, key = pushed
    said = second.cache("pull", f"--url={url}", status=12)
    assert "Signature could not be verified (3 packages in all)" in said, said
    assert second.installed == set()
    second.gpg(f"yes | spack gpg trust {key}")
    return second


def manifest(url, name):
    """The file that describes a package, and that is signed."""
    (file,) = url.glob(f"v3/manifests/spec/{name}/*.json")
    return file


def unsigned(url, name):
    """What the manifest says, without its signature."""
    text = manifest(url, name).read_text()
    return text[text.index("{") : text.rindex("}") + 1]


def tarball(url, name):
    """The file with the contents of a package."""
    data = json.loads(unsigned(url, name))["data"]
    record = next(each for each in data if ".tar" in each["mediaType"])
    total = record["checksum"]
    return url / "blobs" / record["checksumAlgorithm"] / total[:2] / total


def test_what_was_tampered_with_is_refused_and_nothing_is_installed(cache, trusting):
    # a bit of a tarball; what was signed, under another's name: one with a hole, say; no signature
    content = bytearray(tarball(cache, "py-horovod").read_bytes())
    content[len(content) // 2] ^= 1
    tarball(cache, "py-horovod").write_bytes(content)
    manifest(cache, "python-venv").write_text(manifest(cache, "gcc-runtime").read_text())
    manifest(cache, "gcc-runtime").write_text(unsigned(cache, "gcc-runtime"))
    said = trusting.cache("pull", f"--url={cache}", status=12)
    assert "3 packages in all" in said and "nothing was installed" in said, said
    assert trusting.installed == set()


def test_a_forged_checksum_and_what_is_gone(cache, trusting):
    # another tarball, with its own checksum in the text that was signed
    text = manifest(cache, "python-venv").read_text()
    old = tarball(cache, "python-venv").name
    manifest(cache, "python-venv").write_text(text.replace(old, "0" * 64))
    manifest(cache, "py-horovod").unlink()
    said = trusting.cache("pull", f"--url={cache}", status=12)
    assert "2 packages in all" in said, said
    assert trusting.installed == set()


def test_a_second_machine_installs_it_and_runs_on_two_ranks(pushed, first, trusting):
    trusting.cache("pull", f"--url={pushed[0]}")
    assert trusting.installed == PACKAGES
    library = next(trusting.opt.glob("*/py-horovod*/**/mpi_lib_v2*.so"))
    # where it was compiled is in its debugging information; where it was installed, nowhere
    assert str(first.opt).encode() not in library.read_bytes()
    horovod = target(trusting.checkout.state / "built" / "local-hvd-spack.json")
    command = ["mpirun", "--oversubscribe", "-np", "2", "python", "-c", ranks.PROGRAM]
    output = run(command, env={**horovod.environment, **small_machine()}, timeout=120)
    assert ranks.said(output) == [(0, 2), (1, 2)], output


def test_a_container_registry(first, second, tmp_path):
    """Spack signs nothing there, which has to be said."""
    second.checkout.shell("spack uninstall --all --yes-to-all --force")
    assert second.installed == set()
    with oci.registry(tmp_path) as url:
        assert "--unsigned" in first.cache("push", f"--url={url}", status=2)
        first.cache("push", f"--url={url}", "--unsigned")
        assert "--unsigned" in second.cache("pull", f"--url={url}", status=2)
        second.cache("pull", f"--url={url}", "--unsigned")
    assert second.installed == PACKAGES
