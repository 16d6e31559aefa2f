"""Sites' environments, built and run with stand-ins; mistakes in a site's files are found."""

from __future__ import annotations

import shutil
import warnings

import pytest

from hvd.core import paths
from hvd.model import environment
from hvd.model.versions import pinned
from hvd.solve import repo_index
from tests.conftest import locate_spack
from tests.rehearsal import result
from tests.rehearsal.rehearsal import rehearse
from tests.rehearsal.steps import FAILED, NOT_SHOWN, PASSED
from tests.services.moon import made

STAMPEDE3 = "stampede3-cpu-hvd"


@pytest.mark.parametrize("name", environment.of_sites())
def test_an_environment(name, request):
    """With --write-results, the environment keeps the result, and the page tells it."""
    # what Spack knows of compilers, by their paths: the stand-in's is not the site's
    known = repo_index.directory(pinned().pairs[0].name) / "compilers" / "compilers.json"
    before = known.read_text() if known.exists() else ""
    done = rehearse(name)
    if request.config.getoption("--write-results"):
        result.save(result.file(environment.load(name)), done)
        result.PAGE.write_text(result.page())
    assert (known.read_text() if known.exists() else "") == before
    assert [each for each in done.steps if each.result == FAILED] == []
    for each in done.steps:
        if each.result == NOT_SHOWN:
            warnings.warn(f"{name}: {each.name} not shown: {each.why}", stacklevel=1)


@pytest.mark.parametrize(
    "old, new, step",
    [
        ("prefix: /opt/apps/gcc/13.2.0", "prefix: /opt/app/gcc/13.2.0", "stand-ins"),
        ("[impi/21.11]", "[impi/21.1]", "stand-ins"),
        ("[impi/21.11]", "[intelmpi/21.11]", "modules"),
        ("require: [intel-oneapi-mpi]", "require: [openmpi]", "build"),
    ],
    ids=["prefix", "module's version", "module's name", "MPI family"],
)
def test_a_mistake_is_found(tmp_path, monkeypatch, old, new, step):
    sites = tmp_path / "environments"
    shutil.copytree(paths.ENVIRONMENTS, sites, symlinks=True)
    file = sites / "sites" / "stampede3" / "packages.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    monkeypatch.setenv("HVD_SITES", str(sites))
    monkeypatch.setenv("HVD_STATE", str(tmp_path / "state"))
    done = rehearse(STAMPEDE3)
    assert [each.name for each in done.steps if each.result == FAILED] == [step]


def test_a_site_that_site_new_wrote(tmp_path, monkeypatch):
    locate_spack(pinned().pairs[0].name, tmp_path / "log")
    with made(tmp_path) as moon:
        monkeypatch.setenv("HVD_SITES", str(moon.checkout.root / "environments"))
        monkeypatch.setenv("HVD_STATE", str(tmp_path / "state"))
        done = rehearse("moon-hvd")
    assert {each.result for each in done.steps} == {PASSED}
