"""What our patches change in a Horovod that was built with them."""

import os
import re
import subprocess

import pytest

from hvd.model import recipe, specs

VERSIONS = list(recipe.load("py-horovod").versions())

#: A selection that asks for every patch; the version is put in front.
EVERYTHING = (
    "+mpi+gloo+cuda+ddl frameworks=pytorch,tensorflow,keras target=neoverse_v2 "
    "^py-tensorflow@2.20 ^py-torch@2.14"
)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_patches_of_every_version_apply(py_horovod, horovod_tree, version):
    spec = specs.parse(f"py-horovod@{version} {EVERYTHING}")
    horovod_tree(version, *py_horovod.patches(spec))


def test_no_patch_is_left_out_of_that(py_horovod):
    asked = {
        patch
        for version in VERSIONS
        for patch in py_horovod.patches(specs.parse(f"py-horovod@{version} {EVERYTHING}"))
    }
    assert {patch.name for patch in asked} == {
        patch.name for patch in py_horovod.directory.glob("*.patch")
    }


#: A full specialization of a function template that each object would define for itself.
DEFINED_TWICE = re.compile(
    r"^template<>\s+EIGEN_DEVICE_FUNC (?!.*\b(?:EIGEN_STRONG_INLINE|inline)\b).*\{$", re.MULTILINE
)


@pytest.mark.parametrize("version", ["0.21.0", "0.23.0", "0.25.0"])
def test_eigen_for_arm_is_defined_once(py_horovod, horovod_tree, version):
    """eigen.patch; `nm -C` of an object made with -march=armv8.2-a+fp16 shows the same one."""
    found = []
    for target in ("x86_64", "neoverse_v2"):
        spec = specs.parse(f"py-horovod@{version} target={target}")
        tree = horovod_tree(version, *py_horovod.patches(spec))
        headers = (tree / "third_party/eigen/Eigen/src/Core/arch/NEON").glob("*.h")
        found.append([m[0] for h in headers for m in DEFINED_TWICE.finditer(h.read_text())])
    for_others, for_arm = found
    assert len(for_others) == 1 and "predux_half_dowto4<Packet8hf>" in for_others[0]
    assert for_arm == []


@pytest.mark.parametrize("version", ["0.27.0", "0.28.0", "0.28.1"])
def test_local_gradients_are_divided_in_their_own_type(py_horovod, horovod_tree, version):
    """local-gradients.patch: the number of ranks is an int32 tensor in elastic jobs."""
    spec = specs.parse(f"py-horovod@{version}")
    left = {}
    for patches in ((), py_horovod.patches(spec)):
        tree = horovod_tree(version, *patches)
        text = "".join(
            (tree / f"horovod/{name}/__init__.py").read_text() for name in ("_keras", "tensorflow")
        )
        left[bool(patches)] = len(
            re.findall(r"grad\.values / horovod_size|grad /= (?:float\()?horovod_size", text)
        )
    assert left == {False: 12, True: 0}


#: The first lines of `mpirun --version`, by implementation.
BANNERS = {
    "mpirun (Open MPI) 5.0.11": "OpenMPI",
    "HYDRA build details:\n    Version:                                 5.0.2": "MPICH",
    "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307": "IntelMPI",
    "mpirun (IBM Spectrum MPI) 10.04.00.03rtm4": "SpectrumMPI",
    "some other launcher 1.0": "Unknown",
}


@pytest.mark.parametrize(("banner", "expected"), BANNERS.items(), ids=BANNERS.values())
def test_horovodrun_knows_the_mpi(built_horovod, tmp_path, banner, expected):
    """mpirun.patch"""
    script = tmp_path / "mpirun"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{banner}\nEND\n")
    script.chmod(0o755)
    program = (
        "import os; from horovod.runner import mpi_run\n"
        "print(mpi_run._get_mpi_implementation(dict(os.environ)))"
    )
    target = built_horovod.target
    path = f"{tmp_path}{os.pathsep}{target.environment['PATH']}"
    done = subprocess.run(
        [target.python, "-c", program],
        env={**target.environment, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [expected], done.stderr


def test_horovodrun_gives_options_that_every_mpi_takes(built_horovod):
    """mpirun.patch: Open MPI 5 takes the value of an unknown option for the program."""
    program = "from horovod.runner import mpi_run; print(*mpi_run._NO_BINDING_ARGS)"
    target = built_horovod.target
    done = subprocess.run(
        [target.python, "-c", program], env=target.environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["--bind-to", "none", "--map-by", "slot"], done.stderr
