"""One cell is built and tested: the outcome, whatever fails, and what it is built with."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import types

import pytest

from hvd.core.errors import CommandFailed, HvdError
from hvd.core.steps import Stage, Step
from hvd.host.mpi import Mpi
from hvd.matrix import attempt, definition, toolchain
from hvd.matrix.attempt import Options
from hvd.matrix.needs import Needs
from hvd.matrix.plan import Planned
from hvd.report import RunReport
from tests import matrix as made

matrix = definition.load()
CELL = made.cell()
GCC = made.cell(compiler="gcc-12")
ROCM = made.cell(framework="tensorflow-rocm-2.14", operations="rocm-7.2")
SPACK = made.cell(compiler="gcc-12", engine="spack-1.1")
OPENMPI = Mpi("openmpi", "4.1.8", pathlib.Path("/opt/openmpi"))
OPTIONS = Options(jobs=3, limit=60.0)
#: The versions in the report of a run.
VERSIONS = {
    "Horovod": "0.28.1",
    "Python": "3.11.7",
    "cmake": "3.31.10",
    "gcc": "12.2.0",
    "openmpi": "4.1.8",
}
GOOD = [("setup", "ok"), ("concretize", "ok"), ("build", "ok"), ("smoke", "ok")]
CHECKS = [{"name": "check-build", "passed": True}, {"name": "mpirun", "passed": True}]


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """A function that tries a cell with stand-ins for ``./hvd run``, pip and Spack.

    Its arguments say what these leave behind and how they end; it returns the result, which has
    the command and environment of ``./hvd run`` as well.
    """
    monkeypatch.setenv("HVD_STATE", str(tmp_path))

    def tried(
        cell=CELL, stages=GOOD, checks=CHECKS, status=0, text="", pip="", spack="", mpi=OPENMPI,
        cuda="", options=OPTIONS, **versions
    ):  # fmt: skip
        seen = types.SimpleNamespace(saved=[], pairs=[], commands=[])

        def venv(name, python, requirements, log, *_):
            if pip:
                raise CommandFailed("pip install", 1, pip, log, 1.0)
            return tmp_path / name

        def run(command, *, log, env=None, timeout=None):
            if "-c" in command and command[0] != "bash":
                return types.SimpleNamespace(output=f"CUDA: {cuda}\n")
            seen.commands.append(list(map(str, command)))
            if command[0] == "bash":
                if spack:
                    raise CommandFailed("spack test", 1, spack, log, 1.0)
                return None
            seen.environment = env
            state = pathlib.Path(env["HVD_STATE"])
            (state / "environments" / "e-1").mkdir(parents=True)
            step = state / "step.log"
            step.write_text(text)
            report = RunReport("e", "pip", "now", versions={**VERSIONS, **versions})
            report.stages = [
                Stage(name, came, 10.0, [Step("a step", came, 10.0, str(step), "it failed")])
                for name, came in stages
            ]
            report.checks = [{**check, "log": str(step)} for check in checks]
            if stages:
                report.save(state / "reports" / "e-pip" / "report.json")
            if status != 0:
                raise CommandFailed("hvd run", status, "", log, 1.0)
            return None

        monkeypatch.setattr(attempt.process, "run", run)
        monkeypatch.setattr(toolchain, "venv", venv)
        monkeypatch.setattr(toolchain, "distributions", lambda venv: {"torch": "2.13.0"})
        monkeypatch.setattr(attempt.mpi, "find", lambda path: mpi)
        monkeypatch.setattr(
            attempt.location, "locate", lambda sources, log: seen.pairs.append(sources.pair)
        )
        monkeypatch.setattr(
            attempt.result, "save", lambda result: seen.saved.append(dict(result.checks))
        )
        seen.result = attempt.run(Needs(matrix, made.HERE), Planned(cell), options)
        return seen

    return tried


def option(command, name):
    return command[command.index(name) + 1]


def test_a_cell_that_passes(tried):
    seen = tried()
    result, (command,) = seen.result, seen.commands
    assert (result.result, result.reason, result.stage) == ("passed", "", "")
    assert result.checks == {"check-build": True, "mpirun": True}
    assert result.versions == VERSIONS
    assert result.seconds["build"] == 10.0 and result.distributions == {"torch": "2.13.0"}
    assert result.log == hashlib.sha256(attempt.log(CELL).read_bytes()).hexdigest()
    assert not attempt.state(CELL).exists()
    spec = option(command, "--spec")
    assert spec == "py-horovod@0.28.1 +mpi+gloo ~rocm ~cuda frameworks:=pytorch"
    assert result.spec.startswith(spec) and "^py-torch@2.13.0" in result.spec
    assert option(command, "--jobs") == "3" and option(command, "--engine") == "pip"
    assert seen.environment["HVD_STATE"] == str(attempt.state(CELL))


GLOO = "third_party/gloo/a.h:1:2: error: 'uint8_t' was not declared"
FAILING = {"name": "mpirun", "passed": False, "failures": ["separate worlds", "more"]}
BUILD_FAILS = {"stages": [*GOOD[:2], ("build", "failed")], "status": 12, "text": f"[1%]\n{GLOO}\n"}
RANKS_FAIL = {
    "stages": [*GOOD[:3], ("smoke", "failed")],
    "checks": [CHECKS[0], FAILING],
    "status": 13,
}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"cmake": "3.25.1"},
         ("failed", "build", "", "it was built with cmake 3.25.1, not with 3.31.10")),
        ({"gcc": "1.2.0", "cell": GCC},
         ("failed", "build", "", "it was built with gcc 1.2.0, not with 12")),
        ({"Python": "3.1.1"},
         ("failed", "build", "", "it was built with Python 3.1.1, not with 3.11")),
        ({"hip": "6.4", "cell": ROCM},
         ("failed", "build", "", "it was built with hip 6.4, not with 7.2")),
        ({"openmpi": "4.1.4"},
         ("failed", "build", "", "it was built with openmpi 4.1.4, not with 4.1.8")),
        (BUILD_FAILS, ("failed", "build", "gcc-gloo", GLOO)),
        (RANKS_FAIL, ("failed", "smoke", "", "mpirun: separate worlds")),
        ({"stages": GOOD[:3], "status": None},
         ("failed", "build", "", "it took longer than 60 s")),
        ({"stages": (), "status": -9},
         ("failed", "", "", "`hvd run` exited with status -9 after 1 s")),
        ({"cell": SPACK, "spack": "==> Error: 1 test failed"},
         ("failed", "spack test", "", "==> Error: 1 test failed")),
        # no failures of Horovod
        ({"pip": "ERROR: No matching distribution found for torch"},
         ("skipped", "", "", "ERROR: No matching distribution found for torch")),
        ({"mpi": None}, ("skipped", "", "", "has no MPI to build with")),
        ({"cuda": "13.0"}, ("skipped", "", "", "pip only had a CUDA build of pytorch-2.13")),
    ],
)  # fmt: skip
def test_what_fails_is_told_by_stage_cause_and_first_error(tried, arguments, expected):
    result = tried(**arguments).result
    assert (result.result, result.stage, result.cause) == expected[:3]
    assert result.reason.endswith(expected[3])
    if expected[0] == "failed":
        # its sources and logs are of use
        assert attempt.state(result.cell).exists()
    if result.stage == "smoke":
        assert result.checks == {"check-build": True, "mpirun": False}
    if result.stage == "build" and result.cause:
        assert "uint8_t" in attempt.log(result.cell).read_text()


def test_a_cell_that_spack_builds_is_tested_by_spack_as_well(tried):
    seen = tried(SPACK)
    assert seen.result.result == "passed" and seen.result.checks["spack test run"]
    # a kill after that leaves no result that Spack did not test
    assert seen.saved == [seen.result.checks]
    assert seen.pairs == ["spack-1.1"]
    command, test = seen.commands
    assert test[2].endswith("/environments/e-1 test run py-horovod")
    # what is after ^cmake is CMake's
    assert option(command, "--spec").endswith(" %gcc@12 ^cmake@3.31.10")
    assert option(command, "--pair") == "spack-1.1"
    assert not tried(SPACK, spack="==> Error").result.checks["spack test run"]


def test_horovod_s_own_tests_and_the_examples_run_after_the_build(tried, monkeypatch):
    def run_tests(tests, release, files, on_ranks):
        yield "test_torch.py, mpirun", {"passed": 9, "failed": 1, "skipped": 0}, unexpected

    def rates(name, on_ranks):
        raise HvdError("3 epochs of 10")

    monkeypatch.setattr(attempt.ranks, "built", lambda state, engine: None)
    monkeypatch.setattr(attempt.ranks, "run_tests", run_tests)
    unexpected = []
    came = tried(options=Options(upstream_tests=True)).result
    assert came.result == "passed" and came.upstream["test_torch.py, mpirun"]["passed"] == 9
    monkeypatch.setattr(attempt.ranks, "rates", rates)
    came = tried(options=Options(upstream_tests=True, examples=True)).result
    assert (came.stage, came.reason) == ("examples", "examples/pytorch: 3 epochs of 10")
    # the first failure is the reason
    unexpected = ["TorchTests::test_a"]
    came = tried(options=Options(upstream_tests=True, examples=True)).result
    assert came.stage == "upstream tests" and "TorchTests::test_a failed" in came.reason
    assert {"upstream tests", "examples"} <= came.seconds.keys()


def test_what_the_operating_system_has_is_not_installed(tmp_path, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(list(map(str, command)))
        (tmp_path / "matrix" / "venvs").mkdir(parents=True, exist_ok=True)
        pathlib.Path(command[-1]).mkdir() if "venv" in command else None
        return types.SimpleNamespace(output="a warning\n" + json.dumps(there))

    there = [{"name": "tensorflow_cpu", "version": "2.21.0"}, {"name": "PyYAML", "version": "6"}]
    monkeypatch.setenv("HVD_STATE", str(tmp_path))
    monkeypatch.setattr(toolchain.process, "run", run)
    made = toolchain.venv("torch", "/usr/bin/python3", [], tmp_path / "log", system=True)
    make, listed = commands
    assert {"--system-site-packages", "--without-pip"} <= set(make)
    assert listed[1:4] == ["-m", "pip", "list"]
    # by normalized names
    assert toolchain.distributions(made) == {"tensorflow-cpu": "2.21.0", "pyyaml": "6"}


def test_a_cell_s_compiler_and_cache_come_first_on_path(tmp_path, monkeypatch):
    monkeypatch.setenv("HVD_STATE", str(tmp_path))
    monkeypatch.setenv("CXX", "clang++")
    here = dataclasses.replace(made.HERE, ccache="/usr/bin/ccache")
    found = toolchain.environment(here, GCC, [tmp_path / "mpi"], None, tmp_path / "state")
    links = tmp_path / "matrix" / "compilers"
    first = [tmp_path / "mpi", links / "ccache", links / "gcc-12"]
    assert found["PATH"].split(os.pathsep)[:3] == list(map(str, first))
    assert os.readlink(links / "gcc-12" / "c++") == "/usr/bin/g++-12"
    assert os.readlink(links / "gcc-12" / "gcc") == "/usr/bin/gcc-12"
    assert os.readlink(links / "ccache" / "c++") == "/usr/bin/ccache"
    assert "CXX" not in found and found["CCACHE_BASEDIR"] == str(tmp_path / "state")
    # Spack finds compilers by their own names
    by_spack = toolchain.environment(here, SPACK, [], None, tmp_path / "state")
    assert str(links) not in by_spack["PATH"]


def test_mpi4py_is_given_the_library_and_not_the_linker_s_text(tmp_path):
    (tmp_path / "lib").mkdir()
    for name in ("libmpi.so", "libmpi.so.12", "libmpi.so.12.5.0", "libmpi_abi.so.1"):
        (tmp_path / "lib" / name).write_text("INPUT(libmpi.so.12)")
    library = Mpi("mpich", "5.0.2", tmp_path)
    found = toolchain.environment(made.HERE, CELL, [], library, tmp_path)
    assert found["MPI4PY_LIBMPI"] == str(tmp_path / "lib" / "libmpi.so.12")
    assert "CCACHE_DIR" not in found
