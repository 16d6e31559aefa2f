"""A second machine for tests of a binary cache, and how such a cache is tampered with."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

from tests.conftest import Checkout

#: What `./hvd cache pull` does when the environment is set up and solved.
INSTALL = """
import sys
from hvd.core import process
from hvd.model import environment
from hvd.cache import cache, transfer
from hvd.build import engine_spack
from hvd.build.engine_spack import SpackEngine, pair_of
from hvd.core.run import Run
from hvd.solve.spack import Sources
process.adopt_orphans()
subject = environment.load("local-hvd")
run = Run("local-hvd", "spack")
with run.stage("build"):
    with run.step("Spack") as task:
        spack = engine_spack.locate(Sources(pair=pair_of(subject)), task)
    solved = SpackEngine(subject, spack).solution()
    transfer.install(spack, subject, solved.specs, cache.named(sys.argv[1]), run)
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
