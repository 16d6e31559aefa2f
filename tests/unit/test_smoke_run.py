"""Launching, and what is made of a launch, with stand-ins for mpirun and horovodrun."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import sys

import pytest

from hvd.core.errors import HvdError
from hvd.model import check_build
from hvd.model.check_build import Expectation
from hvd.smoke import run
from hvd.smoke.launch import LAUNCHERS, Target, environment, find_program, launchers
from tests.unit.smoking import MPI_ONLY


def run_smoke(target, expectation, out):
    """Every check of the plan, also after one that failed."""
    return [perform() for _, perform in run.smoke_plan(target, expectation, out)]


def test_every_launcher_of_the_controllers_is_run(target: Target, tmp_path: pathlib.Path) -> None:
    checks = run_smoke(target, MPI_ONLY, tmp_path / "out")
    names = ["check-build", "mpirun", "horovodrun --mpi"]
    assert [(check.name, check.failures) for check in checks] == [(name, []) for name in names]
    for check in map(json.loads, (json.dumps(check.to_dict()) for check in checks)):
        assert check["passed"] is True
        assert pathlib.Path(check["log"]).is_file()


def test_check_has_tables_of_all_ranks(target: Target, tmp_path: pathlib.Path) -> None:
    check = run.run_launcher(LAUNCHERS[0], target, tmp_path / "out")
    assert check.operations == [
        {
            "operation": "allgather",
            "dtype": "int32",
            "elements": 10,
            "seconds": {"0": 1, "1": 2},
            "ok": {"0": True, "1": True},
        }
    ]
    assert check.bandwidth == [
        {
            "method": "horovod",
            "bytes": 4_000_000,
            "seconds": 2,
            "algorithm_mb_s": 2.0,
            "bus_mb_s": 2.0,  # 2 (n - 1) / n is 1 for two ranks
        }
    ]
    assert check.details == {
        "framework": "torch",
        "mpi_libraries": ["/opt/mpi/lib/libmpi.so"],
        "left_out": [{"operation": "x", "dtype": "bool", "reason": "y"}],
    }


def test_records_of_an_earlier_run_do_not_count(target: Target, tmp_path: pathlib.Path) -> None:
    stale = tmp_path / "out" / "mpirun" / "rank-2.jsonl"
    stale.parent.mkdir(parents=True)
    stale.write_text('{"event": "init", "rank": 2, "size": 3, "host": "a", "pid": 9}\n')
    (stale.parent / "log.txt").write_text("Missing ranks:\n1: [x]\n")
    check = run.run_launcher(LAUNCHERS[0], target, tmp_path / "out")
    assert check.failures == []
    assert "Missing ranks" not in check.log.read_text()


def test_unexpected_build_fails_and_the_rest_still_runs(
    target: Target, tmp_path: pathlib.Path
) -> None:
    expected = Expectation("0.28.1", MPI_ONLY.frameworks, MPI_ONLY.controllers, frozenset({"mpi"}))
    checks = run_smoke(target, expected, tmp_path / "out")
    assert checks[0].failures == ["operations: nccl is built, but not expected"]
    assert not checks[0].passed
    assert [check.passed for check in checks[1:]] == [True, True]


@pytest.mark.parametrize(
    "missing, failing",
    [
        ("horovodrun", ["check-build", "horovodrun --mpi"]),
        ("mpirun", ["mpirun", "horovodrun --mpi"]),
    ],
)
def test_missing_program_is_named(
    target: Target, tmp_path: pathlib.Path, missing: str, failing: list[str]
) -> None:
    os.remove(tmp_path / "bin" / missing)
    checks = run_smoke(target, MPI_ONLY, tmp_path / "out")
    assert [check.name for check in checks if not check.passed] == failing
    for check in checks:
        if not check.passed:
            (failure,) = check.failures
            assert failure.startswith(f"{missing} is not on the PATH")


def test_time_limit_is_a_failure(target: Target, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "bin" / "mpirun"
    script.write_text(f"#!{sys.executable}\nimport time; time.sleep(600)\n")
    check = run.run_launcher(LAUNCHERS[0], target, tmp_path / "out", timeout=1)
    (failure,) = check.failures
    assert re.fullmatch(r"mpirun was killed after \d+ s, and no rank had left a record", failure)


def test_a_horovod_without_a_framework_is_refused(target: Target, tmp_path) -> None:
    expected = Expectation("0.28.1", frozenset(), frozenset({"mpi"}), frozenset())
    with pytest.raises(HvdError, match=r"frameworks \[\]"):
        run_smoke(target, expected, tmp_path)


def test_every_plugin_is_run() -> None:
    assert set(run.FRAMEWORKS) == set(check_build.PLUGINS)


def test_launchers_follow_the_controllers() -> None:
    by_controllers = {
        ("mpi",): ["mpirun", "horovodrun --mpi"],
        ("gloo",): ["horovodrun --gloo"],
        ("gloo", "mpi"): ["mpirun", "horovodrun --mpi", "horovodrun --gloo"],
    }
    for controllers, names in by_controllers.items():
        expected = Expectation("", frozenset(), frozenset(controllers), frozenset())
        assert [launcher.name for launcher in launchers(expected)] == names


def test_commands() -> None:
    programs = [each for each in LAUNCHERS if each.program]
    assert [" ".join(each.command("/bin/x", 4)) for each in programs] == [
        "/bin/x -np 4",
        "/bin/x --mpi -np 4 -H localhost:4",
        "/bin/x --gloo -np 4 -H localhost:4",
        "/bin/x -np 4",
        "/bin/x -np 4",
        "/bin/x --gloo -np 4 -H localhost:4",
    ]


@pytest.mark.parametrize(
    ("gpu", "gpus", "tried"),
    [
        ("nccl", 4, {"mpirun, GPU": 2, "horovodrun --gloo, GPU": 2}),
        # NCCL refuses two ranks on one GPU, and MPI does not
        ("rccl", 1, {"mpirun, GPU": 1, "horovodrun --gloo, GPU": 1}),
        ("mpi", 1, {"mpirun, GPU": 2}),
        ("ddl", 1, {"mpirun, GPU": 1}),
        ("nccl", 0, {}),
        ("", 1, {}),
    ],
)
def test_operations_on_gpus_are_tried_where_there_are_some(
    target: Target, tmp_path, monkeypatch, gpu, gpus, tried
) -> None:
    monkeypatch.setattr(run, "_gpus", lambda target, framework: gpus)
    expected = dataclasses.replace(MPI_ONLY, controllers=frozenset({"mpi", "gloo"}))
    plan = run.smoke_plan(target, expected, tmp_path, gpu=gpu)
    on_gpus = [(name, perform) for name, perform in plan if name.endswith("GPU")]
    assert {name: perform.keywords["ranks"] for name, perform in on_gpus} == tried
    left_out = plan[0][1]().details.get("left_out", [])
    blind = ["horovod.torch on GPUs"] if gpu and not gpus else []
    assert [row["operation"] for row in left_out] == blind
    if on_gpus:
        words = on_gpus[0][1]().log.read_text()
        assert "--device gpu" in words


def test_a_framework_is_asked_for_its_gpus(target: Target, tmp_path) -> None:
    three = "import types\ncuda = types.SimpleNamespace(device_count=lambda: 3)\n"
    for text, number in ((three, 3), ("raise ImportError\n", 0)):
        module = tmp_path / "torch.py"
        module.write_text(text)
        environ = {**target.environment, "PYTHONPATH": str(tmp_path)}
        assert run._gpus(Target(sys.executable, environ), "torch") == number


def test_oneccl_is_tried_where_it_was_built(target: Target) -> None:
    expected = Expectation("", frozenset(), frozenset({"mpi"}), frozenset({"mpi", "ccl"}))
    names = ["mpirun", "horovodrun --mpi", "mpirun, oneCCL"]
    assert [launcher.name for launcher in launchers(expected)] == names
    settings = environment(launchers(expected)[-1], target, timeout=120)
    assert (settings["HOROVOD_CONTROLLER"], settings["HOROVOD_CPU_OPERATIONS"]) == ("mpi", "ccl")


def test_surroundings_do_not_choose_the_controller(target: Target) -> None:
    inherited = {
        **target.environment,
        "HOROVOD_CONTROLLER": "mpi",
        "HOROVOD_CPU_OPERATIONS": "mpi",
    }
    gloo = environment(LAUNCHERS[2], Target(target.python, inherited), timeout=120)
    assert (gloo["HOROVOD_CONTROLLER"], gloo["HOROVOD_CPU_OPERATIONS"]) == ("gloo", "gloo")
    assert gloo["PATH"] == target.environment["PATH"]
    assert gloo["HOROVOD_STALL_CHECK_TIME_SECONDS"] == "30"


@pytest.mark.parametrize("user, allowed", [(0, True), (1000, False)])
def test_root_is_allowed_only_for_root(
    target: Target, monkeypatch: pytest.MonkeyPatch, user: int, allowed: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    settings = environment(LAUNCHERS[0], target, timeout=120)
    assert (settings.get("OMPI_ALLOW_RUN_AS_ROOT") == "1") == allowed


@pytest.mark.parametrize("program", ["", "ssh", "rsh"])
def test_a_machine_without_ssh_will_do(target: Target, tmp_path, program: str) -> None:
    """Open MPI 4 looks for one, and stops where there is none."""
    if program:
        shutil.copy(tmp_path / "bin" / "mpirun", tmp_path / "bin" / program)
    agent = environment(LAUNCHERS[0], target, timeout=120).get("OMPI_MCA_plm_rsh_agent")
    assert agent is None if program else os.access(agent, os.X_OK)


def test_programs_come_from_the_target_only(target: Target, tmp_path: pathlib.Path) -> None:
    assert find_program(target, "mpirun") == str(tmp_path / "bin" / "mpirun")
    with pytest.raises(HvdError, match="python3 is not on the PATH"):
        find_program(target, "python3")


BOTH = Expectation(
    "0.28.1",
    frozenset({"tensorflow", "pytorch"}),
    frozenset({"mpi", "gloo"}),
    frozenset({"mpi", "gloo"}),
    frozenset({"keras"}),
)


def test_every_framework_is_run_with_every_launcher(target: Target, tmp_path) -> None:
    plan = run.smoke_plan(target, BOTH, tmp_path / "out")
    assert [name for name, _ in plan] == [
        "check-build",
        *("mpirun (torch)", "horovodrun --mpi (torch)", "horovodrun --gloo (torch)"),
        *("mpirun (tensorflow)", "horovodrun --mpi (tensorflow)"),
        "horovodrun --gloo (tensorflow)",
    ]
    checks = [perform() for _, perform in plan[1:]]
    assert [check.name for check in checks] == [name for name, _ in plan[1:]]
    assert [check.failures for check in checks] == [[]] * 6
    assert [check.details["framework"] for check in checks] == ["torch"] * 3 + ["tensorflow"] * 3
    assert len({check.log for check in checks}) == 6


def test_keras_is_checked_with_tensorflow_alone(target: Target, tmp_path) -> None:
    words = {}
    for framework in ("torch", "tensorflow"):
        keras = framework == "tensorflow"
        check = run.run_launcher(
            LAUNCHERS[0], target, tmp_path / framework, framework=framework, keras=keras
        )
        words[framework] = check.log.read_text().split()
    assert "--keras" in words["tensorflow"] and "--keras" not in words["torch"]
    plan = run.smoke_plan(target, BOTH, tmp_path / "out")
    asked = {name: perform.keywords["keras"] for name, perform in plan[1:]}
    assert all(keras == ("tensorflow" in name) for name, keras in asked.items())


def test_what_has_no_plugin_is_not_expected_to_be_listed(target: Target, tmp_path) -> None:
    expected = dataclasses.replace(MPI_ONLY, extras=frozenset({"spark", "keras"}))
    assert run.check_build_items(target, expected, tmp_path).failures == []


def test_mxnet_is_not_imported_behind_another(target: Target, tmp_path) -> None:
    script = tmp_path / "bin" / "horovodrun"
    script.write_text("import os, sys\nassert 'torch' not in sys.modules\n" + script.read_text())
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "torch.py").write_text("")
    environ = {**target.environment, "PYTHONPATH": str(modules)}
    for frameworks, status in (({"pytorch"}, False), ({"pytorch", "mxnet"}, True)):
        expected = dataclasses.replace(MPI_ONLY, frameworks=frozenset(frameworks))
        check = run.check_build_items(Target(target.python, environ), expected, tmp_path)
        assert ("Horovod v0.28.1" in check.log.read_text()) == status


@pytest.mark.parametrize("first", ["#!/bin/sh", "#!/bin/sh -e\nif true; then :; fi"])
def test_a_wrapper_of_horovodrun_is_run_as_it_is(target: Target, tmp_path, first: str) -> None:
    script = tmp_path / "bin" / "horovodrun"
    python = script.with_name("horovodrun.py")
    script.rename(python)
    script.write_text(f'{first}\nexec {sys.executable} {python} "$@"\n')
    script.chmod(0o755)
    assert run.check_build_items(target, MPI_ONLY, tmp_path).failures == []


def test_frameworks_are_there_before_horovod_forks(target: Target, tmp_path) -> None:
    script = tmp_path / "bin" / "horovodrun"
    script.write_text(
        "import os, sys\n"
        "assert sys.argv[1:] == ['--check-build', '--verbose'], sys.argv\n"
        "assert 'torch' in sys.modules and 'program_check_build' not in sys.modules\n"
        "print(os.environ['CHECK_BUILD'])\n"
    )
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "torch.py").write_text("")
    has_torch = dataclasses.replace(
        target, environment={**target.environment, "PYTHONPATH": str(modules)}
    )
    assert run.check_build_items(has_torch, MPI_ONLY, tmp_path).failures == []
    (modules / "torch.py").write_text("raise OSError('no libgomp')")
    assert run.check_build_items(has_torch, MPI_ONLY, tmp_path).failures
    assert "AssertionError" in (tmp_path / "check-build" / "log.txt").read_text()
