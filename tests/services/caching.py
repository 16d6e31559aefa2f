"""A second machine for tests of a binary cache, and how such a cache is tampered with."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys

from tests.checkout import Checkout

#: What `./hvd cache pull` does when the environment is set up and solved.
INSTALL = """
import sys
from hvd.core import process
from hvd.model import environment
from hvd.cache import cache
from hvd.build import engine_spack
from hvd.build.engine_spack import SpackEngine, pair_of
from hvd.core.run import Run
from hvd.solve.location import Sources
process.adopt_orphans()
subject = environment.load("local-hvd")
run = Run("local-hvd", "spack")
with run.stage("build"):
    with run.step("Spack") as task:
        spack = engine_spack.locate(Sources(pair=pair_of(subject)), task)
    solved = SpackEngine(subject, spack).solution()
    cache.install(spack, subject, solved.specs, cache.named(sys.argv[1]), run)
"""


@dataclasses.dataclass
class Machine:
    """A checkout with a keyring, and the interpreter that its frameworks are from."""

    checkout: Checkout
    keyring: pathlib.Path
    python: pathlib.Path

    def cache(self, command, *arguments, status=0):
        """Output of ``./hvd cache``."""
        variables = {"SPACK_GNUPGHOME": str(self.keyring), "HVD_CACHE": ""}
        return self.checkout.hvd("cache", command, *arguments, status=status, **variables)

    def install(self, url):
        """Output of an installation from the cache ``url`` that is refused."""
        command = [sys.executable, "-c", INSTALL, url]
        output = self.checkout.run(command, None, SPACK_GNUPGHOME=str(self.keyring))
        assert "error: " in output, output
        return output

    @property
    def opt(self):
        """Where Spack installs."""
        (tree,) = self.checkout.state.glob("spack-*/opt")
        return tree

    @property
    def installed(self):
        """Names of the packages that are installed, by what is there and by Spack's database."""
        tree = self.opt
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


def step_seconds(said, name):
    """The seconds that a step of ``./hvd`` took, by what it printed."""
    (line,) = [line for line in said.splitlines() if line.strip().startswith(name)]
    words = line.split()
    return float(words[words.index("s") - 1])
