"""The answers that Spack gives with nothing but the repository.

As a user sets it up: ``spack repo add``, ``spack compiler find``, ``spack external find cmake
gmake``, and Spack's own defaults otherwise.
"""

from __future__ import annotations

import json
import pathlib

import pytest
import yaml

from hvd.core import paths, process
from tests.spack.conftest import path_without, variables

SOLVE = pathlib.Path(__file__).with_name("solve_plainly.py")
#: Solves of everything that builtin has take a minute each.
_TIMEOUT = 1800


@pytest.fixture(scope="module")
def plain(spack, tmp_path_factory):
    """A function that gives the answers of a plain Spack to some specs."""

    def answers(*specs, cmake=None, fortran=True):
        home = tmp_path_factory.mktemp("plain")
        builtin = spack.packages / "repos" / "spack_repo" / "builtin"
        scope = home / "config"
        scope.mkdir()
        (scope / "repos.yaml").write_text(yaml.safe_dump({"repos": {"builtin": str(builtin)}}))
        (scope / "bootstrap.yaml").write_text("bootstrap: {enable: false}\n")
        environment = variables(spack, scope, home / "cache")
        if not fortran:
            environment["PATH"] = path_without(r".*gfortran.*", home / "bin")
        program = [spack.root / "bin" / "spack", "--color=never"]
        # a cache of solutions is no answer
        program += ["-c", "concretizer:concretization_cache:enable:false"]
        program += ["-c", f"config:install_tree:root:{home / 'opt'}"]

        def run(*words):
            return process.run(
                [*program, *words], log=home / "log", env=environment, timeout=_TIMEOUT
            ).output

        run("repo", "add", paths.REPOSITORY)
        run("compiler", "find")
        run("external", "find", "cmake", "gmake")
        if cmake:
            found = yaml.safe_load((scope / "packages.yaml").read_text())
            external = {"spec": f"cmake@{cmake}", "prefix": "/opt/old"}
            found["packages"]["cmake"] = {"buildable": False, "externals": [external]}
            (scope / "packages.yaml").write_text(yaml.safe_dump(found))
        return json.loads(run("python", SOLVE, *specs).splitlines()[-1])

    return answers


def test_a_refusal_is_not_walked_around(plain):
    """What is on by default goes off by the user's word alone."""
    open_mpi, controllers = plain("py-horovod ^openmpi@3.1.3", "py-horovod~mpi~gloo")
    assert "Open MPI 3.1.3 hangs in Horovod; use openmpi@:3.1.2" in open_mpi["errors"][0]
    assert "Horovod requires a controller; use +mpi or +gloo" in controllers["errors"][0]


@pytest.mark.parametrize(
    ("machine", "missing"),
    [({"fortran": False}, "fortran"), ({"cmake": "3.13.4"}, "cmake")],
    ids=["no Fortran compiler", "an old CMake"],
)
def test_what_a_machine_lacks(plain, machine, missing):
    """The defaults, or what is missing; never a package that cannot be built."""
    (answer,) = plain("py-horovod", **machine)
    if "errors" in answer:
        assert any(missing in message for message in answer["errors"])
    else:
        nodes = answer["nodes"]
        for wanted in ("frameworks:=pytorch", "+gloo", "+mpi"):
            assert wanted in nodes["py-horovod"]
        assert "py-torch" in nodes
        # these are for externals alone
        assert not {"intel-mpi", "ibm-ddl"} & set(nodes)
