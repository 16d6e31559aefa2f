"""Horovod for Power and Arm: built for a processor, and run on two ranks by QEMU."""

from __future__ import annotations

import dataclasses

import archspec.cpu
import pytest
from elftools.elf.elffile import ELFFile

from hvd.model.versions import pinned
from hvd.report import RunReport
from tests.conftest import locate_spack
from tests.emulated import roots
from tests.emulated.roots import Root

#: Roots, the processors to build for, and how ELF calls their family.
CASES = {
    "bookworm-ppc64el": ("power9le", "EM_PPC64"),
    "bookworm-arm64": ("neoverse_v2", "EM_AARCH64"),
}


@dataclasses.dataclass(frozen=True)
class Built:
    """What ``./hvd run`` has built in a root for ``target`` with Debian's PyTorch."""

    root: Root
    target: str
    report: RunReport


def build(root: Root, engine: str) -> Built:
    target = CASES[root.name][0]
    spec = f"py-horovod+mpi+gloo~cuda~rocm frameworks=pytorch target={target}"
    root.run("./hvd", "run", f"--engine={engine}", "--python=/usr/bin/python3", f"--spec={spec}")
    (file,) = root.state.glob("reports/*/report.json")
    return Built(root, target, RunReport.load(file))


@pytest.fixture(scope="module", params=CASES)
def built(request, tmp_path_factory):
    return build(roots.make(request.param, tmp_path_factory.mktemp(request.param)), "pip")


def test_every_source_is_compiled_for_the_processor(built):
    (log,) = built.root.state.glob("logs/*/build/*pip-install-horovod.log")
    lines = log.read_text(errors="replace").splitlines()
    compilations = [line for line in lines if "/c++ " in line and " -c /" in line]
    version = built.report.versions["gcc"]
    flags = archspec.cpu.TARGETS[built.target].optimization_flags("gcc", version)
    assert flags and len(compilations) > 50
    assert [line for line in compilations if flags not in line] == []


def test_the_libraries_are_of_its_family(built):
    libraries = built.root.state.glob("pip/*/venv/lib/python3*/site-packages/horovod/**/*.so")
    machines = set()
    for path in libraries:
        with open(path, "rb") as stream:
            machines.add(ELFFile(stream)["e_machine"])
    assert machines == {CASES[built.root.name][1]}


def test_two_ranks_pass_every_operation_under_each_launcher(built):
    checks = {str(each["name"]): each for each in built.report.checks}
    launchers = ["mpirun", "horovodrun --mpi", "horovodrun --gloo"]
    assert list(checks) == ["check-build", *launchers]
    for name, check in checks.items():
        assert check["passed"], (name, check["failures"])
        ranks = [each["ok"] for each in check["operations"]]
        assert all(ok == {"0": True, "1": True} for ok in ranks), name
    assert min(len(checks[name]["operations"]) for name in launchers) > 30


def test_the_report_names_processor_and_root(built):
    assert built.report.host["cpu"] == str(archspec.cpu.TARGETS[built.target].family)
    assert built.report.host["root"] == built.root.name


def test_spack_installs_and_tests_it_on_power(tmp_path):
    """Spack's Python is emulated, and its compilers are native."""
    # into the cache, which the root sees
    locate_spack(pinned().pairs[0].name, tmp_path / "log")
    built = build(roots.make("bookworm-ppc64el", tmp_path), "spack")
    assert built.report.versions["gcc"]
    checks = built.report.checks
    assert len(checks) == 4 and all(each["passed"] for each in checks)
    said = "find --format '{architecture.target}' py-horovod && spack test run py-horovod"
    output = built.root.run("bash", "-c", f". .hvd/setup-env.sh && spack {said}")
    assert built.target in output.split() and "1 passed of 1 spec" in output
