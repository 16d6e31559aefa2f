"""The answers that Spack gives with nothing but the repository.

As a user sets it up: ``spack repo add``, ``spack compiler find``, ``spack external find cmake
gmake``, and Spack's own defaults otherwise.
"""

from __future__ import annotations

import json
import pathlib
import re

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
    # with an index of all packages, which takes a dozen seconds
    cache = tmp_path_factory.mktemp("cache")

    def answers(*specs, packages=None, fortran=True, options=()):
        home = tmp_path_factory.mktemp("plain")
        builtin = spack.packages / "repos" / "spack_repo" / "builtin"
        scope = home / "config"
        scope.mkdir()
        (scope / "repos.yaml").write_text(yaml.safe_dump({"repos": {"builtin": str(builtin)}}))
        (scope / "bootstrap.yaml").write_text("bootstrap: {enable: false}\n")
        environment = variables(spack, scope, cache)
        if not fortran:
            environment["PATH"] = path_without(r".*gfortran.*", home / "bin")
        program = [spack.root / "bin" / "spack", "--color=never"]
        # a cache of solutions is no answer
        program += ["-c", "concretizer:concretization_cache:enable:false"]
        program += ["-c", f"config:install_tree:root:{home / 'opt'}"]

        program += options

        def run(*words):
            return process.run(
                [*program, *words], log=home / "log", env=environment, timeout=_TIMEOUT
            ).output

        run("repo", "add", paths.REPOSITORY)
        run("compiler", "find")
        run("external", "find", "cmake", "gmake")
        if packages:
            found = yaml.safe_load((scope / "packages.yaml").read_text())
            found["packages"].update(packages)
            (scope / "packages.yaml").write_text(yaml.safe_dump(found))
        return json.loads(run("python", SOLVE, *specs).splitlines()[-1])

    return answers


def externals(*specs):
    """A section of packages.yaml with what a site has."""
    return {
        re.match(r"[\w-]+", text)[0]: {
            "buildable": False,
            "externals": [{"spec": text, "prefix": "/opt/site"}],
        }
        for text in specs
    }


def test_a_refusal_is_not_walked_around(plain):
    """What is on by default goes off by the user's word alone.

    Builtin's Open MPI 3.1.3 is deprecated: an external is what users can still have.
    """
    specs = ("py-horovod ^[virtuals=mpi] openmpi", "py-horovod~mpi~gloo")
    open_mpi, controllers = plain(*specs, packages=externals("openmpi@3.1.3"))
    assert "Open MPI 3.1.3 hangs in Horovod; use openmpi@:3.1.2" in open_mpi["errors"][0]
    assert "Horovod requires a controller; use +mpi or +gloo" in controllers["errors"][0]


def test_a_gpu_architecture_is_configured(plain):
    """`py-horovod+nccl` as README has it, where the configuration says for which GPUs."""
    site = externals("python@3.11.9", "py-torch@2.9.0+cuda~rocm cuda_arch=90", "openmpi@4.1.8")
    (answer,) = plain("py-horovod+nccl", packages={**site, "all": {"variants": ["cuda_arch=90"]}})
    variants = answer["nodes"]["py-horovod"]
    assert "+nccl" in variants and "cuda_arch:=90" in variants


def test_oneccl_brings_the_only_mpi(plain):
    """Intel's; tests/constraints.py has another one, which a user may choose."""
    site = externals("python@3.11.9", "py-torch@2.9.0~cuda~rocm", "openmpi@4.1.8")
    (answer,) = plain("py-horovod+ccl", packages=site)
    assert "intel-oneapi-mpi" in answer["nodes"] and "openmpi" not in answer["nodes"]


def test_ddl_takes_the_place_of_nccl(plain):
    """NCCL is on by default, and ``+ddl`` turns it off."""
    power = "target=ppc64le"
    site = externals(
        *(f"ibm-ddl@1.4.0 {power}", f"spectrum-mpi@10.4 {power}", f"python@3.9.18 {power}"),
        f"py-torch@2.0.1+cuda~rocm cuda_arch=70 {power}",
        f"gcc@12.2.0 languages:='c,c++' {power}",
    )
    compilers = {"c": "/usr/bin/gcc", "cxx": "/usr/bin/g++"}
    site["gcc"]["externals"][0]["extra_attributes"] = {"compilers": compilers}
    site["all"] = {"require": power}
    options = ["-c", "concretizer:targets:host_compatible:false"]
    (answer,) = plain(f"py-horovod+ddl cuda_arch=70 {power}", packages=site, options=options)
    assert "+ddl" in answer["nodes"]["py-horovod"] and "~nccl" in answer["nodes"]["py-horovod"]


@pytest.mark.parametrize(
    ("machine", "missing"),
    [({"fortran": False}, "fortran"), ({"packages": externals("cmake@3.13.4")}, "cmake")],
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
