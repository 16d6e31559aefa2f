"""One cell is built and tested: the outcome, whatever fails, and Horovod's own tests."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys

import pytest

from hvd.core.errors import CommandFailed
from hvd.core.steps import Stage, Step
from hvd.matrix import attempt, cells, ranks
from hvd.matrix.attempt import Options, Skipped
from hvd.matrix.cells import Cell
from hvd.report import RunReport

matrix = cells.matrix()
GOOD = [("setup", "ok"), ("concretize", "ok"), ("build", "ok"), ("smoke", "ok")]
PIP = Cell("tensorflow-2.21", mpi="none", controllers="gloo")
SPACK = dataclasses.replace(PIP, compiler="gcc-12", engine="spack-1.1")
GLOO = "third_party/gloo/a.h:1:2: error: 'uint8_t' was not declared"


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """A function that tries a cell with stand-ins for ``./hvd run``, pip and Spack."""
    monkeypatch.setenv("HVD_STATE", str(tmp_path))

    def tried(
        cell=PIP, stages=GOOD, checks=(True,),
        status=0, text="", pip="", spack="", **versions
    ):  # fmt: skip
        def venv(name, python, requirements, log, *_):
            if pip:
                raise CommandFailed("pip install", 1, pip, log, 1.0)
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "versions.json").write_text('{"tensorflow-cpu": "2.21.0"}')
            return tmp_path / name

        def run(command, *, log, env=None, timeout=None):
            commands.append(list(map(str, command)))
            if command[0] == "bash":
                if spack:
                    raise CommandFailed("spack test", 1, spack, log, 1.0)
                return
            state = pathlib.Path(env["HVD_STATE"])
            (state / "environments" / "e-1").mkdir(parents=True)
            (state / "step.log").write_text(text)
            known = {"Python": "3.11.7", "cmake": "3.31.10", "gcc": "12.2.0", **versions}
            report = RunReport("e", "pip", "now", versions=known)
            log = str(state / "step.log")
            report.stages = [
                Stage(name, came, 1.0, [Step("a", came, 1.0, log, "it failed")])
                for name, came in stages
            ]
            report.checks = [
                {"name": "mpirun", "passed": each, "failures": ["separate worlds"]}
                for each in checks
            ]
            report.save(state / "reports" / "e-pip" / "report.json")
            if status != 0:
                raise CommandFailed("hvd run", status, "", pathlib.Path(log), 1.0)

        commands, kept = [], []
        monkeypatch.setattr(attempt.process, "run", run)
        monkeypatch.setattr(attempt, "venv", venv)
        result = attempt.run(matrix, cell, Options(), lambda each: kept.append(each.result))
        assert kept[-1] == result.result
        return result, commands

    return tried


def test_a_cell_that_passes(tried):
    result, (command,) = tried()
    assert (result.result, result.reason, result.checks) == ("passed", "", {"mpirun": True})
    assert result.versions["tensorflow-cpu"] == "2.21.0" and result.versions["cmake"] == "3.31.10"
    assert result.stale(matrix, PIP) == [] and matrix.spec(PIP) in command
    assert not list((attempt.state() / "cells").glob("*"))


FAILS = {"status": 12, "stages": [*GOOD[:2], ("build", "failed")], "text": f"[1%]\n{GLOO}\n"}


@pytest.mark.parametrize(
    ("arguments", "stage", "reason"),
    [
        ({"cmake": "3.25.1"}, "build", "it was built with cmake 3.25.1, not with 3.31.10"),
        ({"Python": "3.1.1"}, "build", "it was built with Python 3.1.1, not with 3.11"),
        ({"cell": SPACK, "gcc": "1.2"}, "build", "it was built with gcc 1.2, not with 12"),
        (FAILS, "build", GLOO),
        ({"status": 13, "stages": [*GOOD[:3], ("smoke", "failed")], "checks": (True, False)},
         "smoke", "mpirun: separate worlds"),
        ({"status": None, "stages": GOOD[:3]}, "build", "it took longer than 3600 s"),
        ({"cell": SPACK, "spack": "==> Error: 1 test failed"}, "spack test",
         "==> Error: 1 test failed"),
    ],
)  # fmt: skip
def test_a_failure_has_its_stage_and_first_error(tried, arguments, stage, reason):
    result, _ = tried(**arguments)
    assert (result.result, result.stage, result.reason) == ("failed", stage, reason)
    # sources and logs are of use
    assert list((attempt.state() / "cells").glob("*"))


def test_spack_builds_with_the_cell_s_tools_and_tests_the_package(tried):
    result, (command, test) = tried(SPACK)
    assert result.checks["spack test run"] and "/environments/e-1 test run py-horovod" in test[2]
    assert command[command.index("--spec") + 1].endswith(" %gcc@12 ^cmake@3.31.10")
    with pytest.raises(Skipped, match="No matching distribution"):
        tried(pip="ERROR: No matching distribution found for tensorflow-cpu")


def test_pip_is_asked_before_it_downloads_cuda(tmp_path, monkeypatch):
    monkeypatch.setenv("HVD_STATE", str(tmp_path))
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nmkdir -p $3/bin; cp $0.pip $3/bin/python\n")
    python.chmod(0o755)
    pip = tmp_path / "python.pip"
    pip.write_text("""#!/bin/sh
case "$*" in *--dry-run*) echo Would install torch-2.13 nvidia-nccl-cu13-2.29;;
*list*) echo warning; echo '[{"name": "Torch_X", "version": "1"}]';; esac
""")
    pip.chmod(0o755)
    arguments = ("torch", str(python), ["torch"], tmp_path / "log")
    with pytest.raises(Skipped, match="CUDA"):
        attempt.venv(*arguments, cuda=False)
    made = attempt.venv(*arguments)
    assert json.loads((made / "versions.json").read_text()) == {"torch-x": "1"}
    python.unlink()
    assert attempt.venv(*arguments, cuda=False) == made


@pytest.mark.parametrize(
    ("log", "first"),
    [
        ("/b/a.cc:3:5: warning: 'error'\n/b/a.cc:12:1: error: 'x'\n", "/b/a.cc:12:1: error: 'x'"),
        ("-- errors occurred!\n\x1b[31mCMake Error at a:5:\x1b[0m\n", "CMake Error at a:5:"),
        ("Traceback:\nModuleNotFoundError: No module named 'x'\n",
         "ModuleNotFoundError: No module named 'x'"),
        ("ERROR: No matching a==1\nERROR: b\n", "ERROR: No matching a==1"),
        ("/usr/bin/ld: a.o: undefined reference to `b'\n",
         "/usr/bin/ld: a.o: undefined reference to `b'"),
        ("==> Error: failed for the following reasons:\n     1. Cannot satisfy\n",
         "1. Cannot satisfy"),
        ("==> Error: The following packages failed to install:\nld: cannot find: error\n",
         "ld: cannot find: error"),
        ("error: subprocess-exited-with-error\nall is well\n", ""),
    ],
)  # fmt: skip
def test_the_first_error_of_a_log(log, first):
    assert attempt.first_error(log) == first


def test_a_test_of_horovod_counts_as_on_its_worst_rank():
    def junit(**outcomes):
        case = '<testcase classname="t.TorchTests" name="{}">{}</testcase>'
        cases = [case.format(name, tag and f"<{tag}/>") for name, tag in outcomes.items()]
        return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"

    first = junit(a="", b="skipped", c="", d="failure", e="skipped")
    second = junit(a="", b="", c="error", d="", e="skipped")
    counts, unexpected = ranks.count([first, second], ["TorchTests::d"])
    assert counts == {"skipped": 1, "passed": 2, "failed": 2} and unexpected == ["TorchTests::c"]
    # none was collected
    assert ranks.count([junit(), junit()], [])[1]


def test_horovod_s_tests_run_once_a_controller_and_every_rank_must_finish(tmp_path, monkeypatch):
    """With a real pytest in place of a cell's."""
    python = pathlib.Path(sys.executable)
    for name in ("mpirun", "horovodrun"):
        program = tmp_path / name
        skip = f"while [ $1 != {python} ]; do shift; done"
        program.write_text(f'#!/bin/sh\n{skip}\nfor r in $RANKS; do PMI_RANK=$r "$@"; done\n')
        program.chmod(0o755)
    tests = tmp_path / "source" / "test" / "parallel"
    tests.mkdir(parents=True)
    (tests / "test_torch.py").write_text("def test_a(): pass\n")
    monkeypatch.setattr(ranks.clone, "ensure", lambda a, b, source, log: None)
    monkeypatch.setattr(ranks.paths, "cache", lambda: tmp_path / "cache")
    commit = matrix.upstream["sources"]["0.28.1"]
    (tmp_path / "cache" / "horovod").mkdir(parents=True)
    (tmp_path / "cache" / "horovod" / commit).symlink_to(tmp_path / "source")
    monkeypatch.setattr(ranks, "patch", lambda *_: None)
    few = {"requirements": ["--help"], "files": {"pytorch": ["parallel/test_torch.py"]}}
    chosen = dataclasses.replace(matrix, upstream={**matrix.upstream, **few})

    def run(reached):
        variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RANKS": reached}
        target = ranks.Target(python, variables)
        on_ranks = ranks.Ranks(target, "both", tmp_path, tmp_path / "log")
        return list(ranks.run_tests(chosen, Cell("pytorch-2.13"), on_ranks))

    counts = {"skipped": 0, "passed": 1, "failed": 0}
    names = ("test_torch.py, mpirun", "test_torch.py, horovodrun --gloo")
    assert run("0 1") == [(name, counts, []) for name in names]
    with pytest.raises(ranks.HvdError, match="1 of 2 ranks"):
        run("0")
