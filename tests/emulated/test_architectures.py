"""Horovod for Power and Arm: built for a processor, and run on two ranks by QEMU."""

from __future__ import annotations

import archspec.cpu
import pytest
from elftools.elf.elffile import ELFFile

from tests.checkout import copy_checkout
from tests.emulated import roots

#: Roots, the processors to build for, and how ELF calls their family.
CASES = {
    "bookworm-ppc64el": ("power9le", "EM_PPC64"),
    "bookworm-arm64": ("neoverse_v2", "EM_AARCH64"),
}


@pytest.fixture(scope="module", params=CASES)
def built(request, tmp_path_factory):
    checkout = copy_checkout(tmp_path_factory.mktemp(request.param) / "hvd")
    root = roots.make(request.param, checkout)
    return roots.build(root, CASES[root.name][0])


def test_every_source_is_compiled_for_the_processor(built):
    version = built.report.versions["gcc"]
    flags = archspec.cpu.TARGETS[built.target].optimization_flags("gcc", version)
    assert flags and len(built.compilations) > 50
    assert [line for line in built.compilations if flags not in line] == []


def test_the_libraries_are_of_its_family(built):
    machines = set()
    for path in built.libraries:
        with open(path, "rb") as stream:
            machines.add(ELFFile(stream)["e_machine"])
    assert machines == {CASES[built.root.name][1]}


def test_two_ranks_pass_every_operation_under_each_launcher(built):
    assert list(built.checks) == [
        "check-build",
        "mpirun",
        "horovodrun --mpi",
        "horovodrun --gloo",
    ]
    for name, check in built.checks.items():
        assert check["passed"], (name, check["failures"])
        ranks = [each["ok"] for each in check["operations"]]
        assert all(ok == {"0": True, "1": True} for ok in ranks), name
    sizes = {len(check["operations"]) for check in list(built.checks.values())[1:]}
    assert min(sizes) > 30, sizes


def test_the_report_names_processor_and_root(built):
    family = str(archspec.cpu.TARGETS[built.target].family)
    assert built.report.host["cpu"] == family
    assert built.report.host["root"] == built.root.name
