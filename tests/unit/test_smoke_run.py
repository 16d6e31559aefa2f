"""Launches and their checks, with stand-ins for mpirun, horovodrun, Spark and Ray."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import sys
import textwrap

import pytest

from hvd.core.errors import HvdError
from hvd.model import check_build
from hvd.model.check_build import Expectation
from hvd.smoke import run
from hvd.smoke.launch import LAUNCHERS, PROGRAM, Target, environment, launchers

MPI_ONLY = Expectation(
    "0.28.1", frozenset({"pytorch"}), frozenset({"mpi"}), frozenset({"nccl", "mpi"})
)

CHECK_BUILD = """Horovod v0.28.1:
Available Frameworks:
    [X] PyTorch
Available Controllers:
    [X] MPI
Available Tensor Operations:
    [X] NCCL
    [X] MPI
"""

#: A launcher whose ranks do what ``program.py`` would, without Horovod.
LAUNCHER = """
    import json, os, pathlib, sys
    if "--check-build" in sys.argv:
        print(os.environ["CHECK_BUILD"])
        sys.exit(0)
    out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
    for rank in (0, 1):
        operation = {"operation": "allgather", "dtype": "int32", "elements": 10 * rank}
        events = [{"event": "launch", "host": "a", "pid": rank},
                  {"event": "init", "rank": rank, "size": 2,
                   "mpi_libraries": ["/opt/mpi/lib/libmpi.so"]},
                  {"event": "left_out", "operation": "x", "reason": "y"},
                  {"event": "start", **operation},
                  {"event": "end", **operation, "seconds": 1 + rank, "ok": True, "detail": ""},
                  {"event": "bandwidth", "method": "horovod", "bytes": 4_000_000,
                   "seconds": 1 + rank},
                  {"event": "done", "done": True}]
        lines = "".join(json.dumps(event) + "\\n" for event in events)
        (out / f"process-a-{rank}.txt").write_text(lines)
    print(json.dumps({"words": sys.argv[1:], "environment": dict(os.environ)}))
"""
BOTH_CONTROLLERS = dataclasses.replace(MPI_ONLY, controllers=frozenset({"mpi", "gloo"}))
BOTH_FRAMEWORKS = dataclasses.replace(
    BOTH_CONTROLLERS,
    frameworks=frozenset({"tensorflow", "pytorch"}),
    extras=frozenset({"keras"}),
)
CLUSTERS = dataclasses.replace(BOTH_CONTROLLERS, extras=frozenset({"spark", "ray"}))


@pytest.fixture
def target(tmp_path):
    """A Horovod under test whose ``mpirun`` and ``horovodrun`` are stand-ins."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("mpirun", "horovodrun"):
        script = binaries / name
        script.write_text(f"#!{sys.executable}\n{textwrap.dedent(LAUNCHER)}")
        script.chmod(0o755)
    environment = {"PATH": str(binaries), "CHECK_BUILD": CHECK_BUILD}
    return Target(pathlib.Path(sys.executable), environment)


def called(check: run.Check) -> dict:
    """Return the words and the environment that the launcher of a check had."""
    return json.loads(check.log.read_text().splitlines()[-1])


def changed(target: Target, **variables: str) -> Target:
    return Target(target.python, {**target.environment, **variables})


def test_check_has_tables_of_all_ranks_and_of_this_run_alone(target, tmp_path) -> None:
    stale = tmp_path / "out" / "mpirun" / "process-a-9.txt"
    stale.parent.mkdir(parents=True)
    stale.write_text('{"event": "init", "rank": 2, "size": 3, "host": "a", "pid": 9}\n')
    check = run.run_launcher(LAUNCHERS[0], target, tmp_path / "out")
    assert (check.state, check.failures) == ("ok", [])
    (operation,), (point,) = check.operations, check.bandwidth
    assert (operation["operation"], operation["dtype"]) == ("allgather", "int32")
    assert operation["seconds"] == {"0": 1, "1": 2}
    assert operation["ok"] == {"0": True, "1": True}
    # 2 (n - 1) / n is 1 for two ranks
    assert (point["method"], point["bytes"], point["seconds"]) == ("horovod", 4_000_000, 2)
    assert (point["algorithm_mb_s"], point["bus_mb_s"]) == (2.0, 2.0)
    assert check.mpi_libraries == ["/opt/mpi/lib/libmpi.so"]
    assert check.left_out == [{"operation": "x", "reason": "y"}]
    assert json.loads(json.dumps(check.to_dict(), default=str))["passed"]


@pytest.mark.parametrize(("missing", "first"), [("horovodrun", "check-build"), ("mpirun",) * 2])
def test_missing_program_is_named(target: Target, tmp_path, missing: str, first: str) -> None:
    os.remove(tmp_path / "bin" / missing)
    checks = [perform() for _, perform in run.smoke_plan(target, MPI_ONLY, tmp_path / "out")]
    assert [check.name for check in checks if check.failures] == [first, "horovodrun --mpi"]
    for check in checks:
        assert not check.failures or check.detail.startswith(f"{missing} is not on the PATH")


@pytest.mark.parametrize(
    ("body", "ended"),
    [
        ("import time; time.sleep(600)", r"was killed after \d+ s"),
        ("raise SystemExit(0)", "exited with status 0"),
        ("raise SystemExit(1)", "exited with status 1"),
    ],
)
def test_ranks_that_leave_no_record_have_not_passed(target, tmp_path, monkeypatch, body, ended):
    monkeypatch.setattr("hvd.smoke.launch._GRACE", 0)
    (tmp_path / "bin" / "mpirun").write_text(f"#!{sys.executable}\n{body}\n")
    check = run.run_launcher(LAUNCHERS[0], target, tmp_path / "out", timeout=1)
    assert re.fullmatch(f"mpirun {ended}, and only 0 of 2 ranks left a record", check.detail)
    assert not check.to_dict()["passed"]


VERSION = CHECK_BUILD.replace("0.28.1", "0.28.0")
#: From 0.22 on horovod.torch can be imported without its plugin, and is then listed.
NO_PLUGIN = "Extension horovod.torch has not been built: mpi_lib_v2.so not found\n" + CHECK_BUILD


@pytest.mark.parametrize(
    ("text", "change", "difference"),
    [
        (CHECK_BUILD, {}, ""),
        (CHECK_BUILD, {"extras": frozenset({"spark", "keras"})}, ""),
        (CHECK_BUILD, {"operations": frozenset({"mpi"})}, "built with nccl"),
        (CHECK_BUILD, {"operations": frozenset({"mpi", "nccl", "ccl"})}, "built without ccl"),
        (CHECK_BUILD, {"frameworks": frozenset()}, "built with pytorch"),
        (CHECK_BUILD.replace("[X] MPI", "[ ] MPI"), {}, "built without mpi"),
        (NO_PLUGIN, {}, "built without pytorch"),
        (VERSION, {}, "built not as version 0.28.1"),
        ("", {}, "built without mpi\nbuilt without nccl\nbuilt without pytorch\nbuilt not as"),
    ],
)
def test_check_build_is_compared(target, tmp_path, text: str, change: dict, difference) -> None:
    expected = dataclasses.replace(MPI_ONLY, **change)
    check = run.check_build_items(changed(target, CHECK_BUILD=text), expected, tmp_path)
    assert check.detail.startswith(difference) and bool(check.detail) == bool(difference)


def test_a_horovod_without_frameworks_is_refused(target, tmp_path) -> None:
    assert set(check_build.PLUGINS) == {"pytorch", "tensorflow", "mxnet"}
    with pytest.raises(HvdError, match=r"frameworks \[\]"):
        run.smoke_plan(target, dataclasses.replace(MPI_ONLY, frameworks=frozenset()), tmp_path)


@pytest.mark.parametrize(
    ("controllers", "operations", "names"),
    [
        ({"gloo"}, set(), ["horovodrun --gloo"]),
        ({"mpi"}, {"mpi", "ccl"}, ["mpirun", "horovodrun --mpi", "mpirun, oneCCL"]),
    ],
)
def test_launchers_follow_the_build(controllers: set, operations: set, names: list) -> None:
    expected = Expectation("", frozenset(), frozenset(controllers), frozenset(operations))
    assert [launcher.name for launcher in launchers(expected)] == names


@pytest.mark.parametrize(
    ("gpu", "gpus", "tried"),
    [
        ("nccl", 4, {"mpirun, GPU": 2, "horovodrun --gloo, GPU": 2}),
        # NCCL refuses two ranks on one GPU, and MPI does not
        ("rccl", 1, {"mpirun, GPU": 1, "horovodrun --gloo, GPU": 1}),
        ("mpi", 1, {"mpirun, GPU": 2}),
        ("ddl", 1, {"mpirun, GPU": 1}),
        ("nccl", 0, {}),
        ("nccl", None, {}),  # which cannot be imported
        ("", 1, {}),
    ],
)
def test_operations_on_gpus_are_tried_if_there_are_some(
    target: Target, tmp_path, gpu, gpus, tried
) -> None:
    counts = f"import types\ncuda = types.SimpleNamespace(device_count=lambda: {gpus})\n"
    (tmp_path / "torch.py").write_text("raise ImportError\n" if gpus is None else counts)
    seeing = changed(target, PYTHONPATH=str(tmp_path))
    plan = run.smoke_plan(seeing, BOTH_CONTROLLERS, tmp_path, gpu=gpu)
    on_gpus = {name: perform for name, perform in plan if name.endswith("GPU")}
    assert {name: perform.keywords["ranks"] for name, perform in on_gpus.items()} == tried
    blind = ["horovod.torch on GPUs"] if gpu and not gpus else []
    assert [row["operation"] for row in plan[0][1]().left_out] == blind
    for perform in list(on_gpus.values())[:1]:
        words = called(perform())["words"]
        assert words[words.index("--device") + 1] == "gpu"
        assert "--mpi4py" not in words


@pytest.mark.parametrize(
    ("launcher", "chosen"), [(2, ("gloo", "gloo")), (0, ("mpi", "mpi")), (3, ("mpi", "ccl"))]
)
def test_surroundings_do_not_choose_the_controller(target: Target, launcher, chosen) -> None:
    other = changed(target, HOROVOD_CONTROLLER="mpi", HOROVOD_CPU_OPERATIONS="mpi")
    settings = environment(LAUNCHERS[launcher], other, timeout=120)
    assert (settings["HOROVOD_CONTROLLER"], settings["HOROVOD_CPU_OPERATIONS"]) == chosen
    assert settings["PATH"] == target.environment["PATH"]
    assert settings["HOROVOD_STALL_CHECK_TIME_SECONDS"] == "30"


@pytest.mark.parametrize("program", ["", "ssh", "rsh"])
@pytest.mark.parametrize("user", [0, 1000])
def test_root_is_allowed_and_ssh_replaced_where_needed(
    target: Target, tmp_path, monkeypatch, user: int, program: str
) -> None:
    """Open MPI 4 looks for ssh or rsh, and stops if there is none."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if program:
        shutil.copy(tmp_path / "bin" / "mpirun", tmp_path / "bin" / program)
    settings = environment(LAUNCHERS[0], target, timeout=120)
    assert (settings.get("OMPI_ALLOW_RUN_AS_ROOT") == "1") == (user == 0)
    agent = settings.get("OMPI_MCA_plm_rsh_agent")
    assert agent is None if program else os.access(agent, os.X_OK)


def test_every_framework_is_run_with_every_launcher(target: Target, tmp_path) -> None:
    names, performs = zip(*run.smoke_plan(target, BOTH_FRAMEWORKS, tmp_path / "out"))
    started = ("mpirun", "horovodrun --mpi", "horovodrun --gloo")
    frameworks = ("torch", "tensorflow")
    assert set(names[1:]) == {f"{each} ({one})" for each in started for one in frameworks}
    checks = [perform() for perform in performs[1:]]
    assert [(check.name, check.failures) for check in checks] == [(name, []) for name in names[1:]]
    assert len({check.log for check in checks}) == 6
    for check in checks:
        words = called(check)["words"]
        assert f"({words[words.index('--framework') + 1]})" in check.name
        assert ("--keras" in words) == ("tensorflow" in check.name)
        assert ("--mpi4py" in words) == ("gloo" not in check.name)


def test_spark_and_ray_start_ranks_themselves(target: Target, tmp_path) -> None:
    found = [each for each in launchers(CLUSTERS) if each.cluster]
    failed = run.run_launcher(found[0], target, tmp_path / "out")
    assert failed.detail.startswith("java is not on the PATH")
    variables = {**target.environment, "PYTHONPATH": "/site", "JAVA_HOME": "/opt/java"}
    target = Target(tmp_path / "bin" / "mpirun", variables)
    names = ["horovod.spark.run, Gloo", "horovod.spark.run, MPI", "RayExecutor"]
    assert [each.name for each in found] == names
    for launcher in found:
        check = run.run_launcher(launcher, target, tmp_path / "out")
        assert check.failures == []
        words = called(check)["words"]
        assert words[:2] == [str(PROGRAM.with_name("program_cluster.py")), launcher.cluster]
        assert words[words.index("--controller") + 1] == launcher.controller
        # the workers import the program
        assert called(check)["environment"]["PYTHONPATH"] == f"{PROGRAM.parent}:/site"


@pytest.mark.parametrize(
    ("banner", "reason"),
    [
        ("mpirun (Open MPI) 4.1.8", ""),
        ("HYDRA build details:\n    Version: 5.0.2", "this one is of mpich"),
    ],
)
def test_spark_starts_ranks_with_open_mpi_alone(target, tmp_path, banner, reason) -> None:
    script = tmp_path / "bin" / "mpirun"
    script.write_text(f"#!{sys.executable}\nprint({banner!r})\n")
    plan = run.smoke_plan(target, CLUSTERS, tmp_path / "out")
    assert ("horovod.spark.run, MPI" in dict(plan)) == (not reason)
    assert "horovod.spark.run, Gloo" in dict(plan)
    left_out = plan[0][1]().left_out
    assert [row["operation"] for row in left_out] == ["horovod.spark.run, MPI"] * bool(reason)
    assert all(row["reason"].endswith(reason) for row in left_out)
