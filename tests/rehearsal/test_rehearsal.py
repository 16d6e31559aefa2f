"""`./hvd rehearse`: an environment passes; mistakes in a copy of its site's files do not."""

from __future__ import annotations

import os
import shutil

import pytest

from hvd.core import paths
from hvd.model.versions import pinned
from hvd.rehearse import result
from hvd.solve import repo_index
from tests.checkout import run

NAME = "stampede3-cpu-hvd"


@pytest.fixture
def rehearse(tmp_path):
    """A function that rehearses with words of packages.yaml replaced: status and result."""

    def start(status: int, old: str = "", new: str = "") -> result.Result:
        sites = tmp_path / "environments"
        shutil.copytree(paths.ENVIRONMENTS, sites, symlinks=True)
        file = sites / "sites" / "stampede3" / "packages.yaml"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
        variables = {"HVD_SITES": str(sites), "HVD_STATE": str(tmp_path / "state")}
        run([paths.ROOT / "hvd", "rehearse", NAME], status, env={**os.environ, **variables})
        return result.load(tmp_path / "state" / "rehearsals" / NAME / "result.json")

    return start


def test_it_passes(rehearse):
    # what Spack knows of compilers, by their paths: the stand-in's is not the site's
    known = repo_index.directory(pinned().pairs[0].name) / "compilers" / "compilers.json"
    before = known.read_text() if known.exists() else ""
    done = rehearse(0)
    assert done.passed and {step.result for step in done.steps} == {result.PASSED}
    assert (known.read_text() if known.exists() else "") == before


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
def test_a_mistake_is_found(rehearse, old, new, step):
    done = rehearse(1, old, new)
    assert [each.name for each in done.steps if each.result == result.FAILED] == [step]
    assert not done.passed
