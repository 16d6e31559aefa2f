"""The smoke tests name rank, operation and log on a broken Horovod; a sound one is in test_run.py.

Faults are planted from outside: a ``sitecustomize`` module on ``PYTHONPATH`` replaces
functions of ``horovod.torch`` right after its import.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import time

import psutil
import pytest

from hvd.smoke.launch import LAUNCHERS, Launcher, Target, find_program
from hvd.smoke.run import Check, run_launcher

#: Limit in seconds for launches that end by themselves.
LIMIT = 120.0

#: Calls ``patch(horovod.torch)``, which FAULT defines, once that module has been imported.
SITECUSTOMIZE = """
import importlib.abc, importlib.machinery, os, signal, sys, time

FAULT

class Patched(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "horovod.torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Patched())
"""

#: Does BODY in place of one ``hvd.allreduce``, on rank 1 only.
ON_RANK_1 = """
def patch(hvd):
    allreduce = hvd.allreduce

    def patched(tensor, **arguments):
        planted = str(tensor.dtype) == "torch.float32" and tensor.numel() == 1000
        if planted and arguments.get("op") == hvd.Sum and hvd.rank() == 1:
            BODY
        return allreduce(tensor, **arguments)

    hvd.allreduce = patched
"""

KILL = ON_RANK_1.replace(
    "BODY", "hvd.allreduce_async(tensor, **arguments); os.kill(os.getpid(), signal.SIGKILL)"
)
HANG = ON_RANK_1.replace("BODY", "time.sleep(3600)")
WRONG = ON_RANK_1.replace("BODY", "return allreduce(tensor, **arguments) + 0.5")

#: Every operation of Horovod gives a wrong result on every rank.
EVERYTHING = """
def patch(hvd):
    def spoil(name, change):
        genuine = getattr(hvd, name)
        setattr(hvd, name, lambda *args, **kw: change(genuine(*args, **kw)))

    for name in ("allreduce", "synchronize", "allgather", "broadcast", "reducescatter"):
        spoil(name, lambda tensor: None if tensor is None else tensor + 1)
    spoil("grouped_allreduce", lambda tensors: [tensor + 1 for tensor in tensors])
    spoil("alltoall", lambda result: (result[0] + 1, result[1]))
    spoil("broadcast_object", lambda each: {**each, "rank": -1})
    spoil("allgather_object", lambda objects: objects[::-1])
    spoil("mpi_enabled", lambda enabled: not enabled)
    hvd.broadcast_parameters = lambda state, root_rank: None
    hvd.DistributedOptimizer = lambda optimizer, named_parameters: optimizer
    barrier = hvd.barrier

    def no_barrier():
        hvd.barrier = barrier  # the next one holds the ranks together at the end

    hvd.barrier = no_barrier
"""

OPERATION = "allreduce sum float32 x 1000"


# `horovodrun --mpi` starts ranks by mpirun: one of the two is enough here
MPIRUN, GLOO = LAUNCHERS[0], LAUNCHERS[2]


@pytest.fixture(params=[MPIRUN, GLOO], ids=lambda launcher: launcher.name)
def launcher(request: pytest.FixtureRequest) -> Launcher:
    return request.param


@pytest.fixture
def broken(built_horovod, tmp_path: pathlib.Path):
    """Return a function that makes a target whose rank 1 has the given fault."""

    def plant(fault: str) -> Target:
        directory = tmp_path / "fault"
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(SITECUSTOMIZE.replace("FAULT", fault))
        return _with_path(built_horovod.target, "PYTHONPATH", directory)

    return plant


def _with_path(target: Target, variable: str, first: pathlib.Path) -> Target:
    rest = target.environment.get(variable)
    value = os.pathsep.join([str(first), *([rest] if rest else [])])
    return Target(target.python, {**target.environment, variable: value})


def _processes_of(out: pathlib.Path) -> list[str]:
    """Command lines of the processes that name ``out``."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(out) in word for word in words):
            found.append(" ".join(words))
    return found


def _run(launcher: Launcher, target: Target, out: pathlib.Path, timeout: float) -> Check:
    options = ("--quick", "--mpi4py") if launcher.controller == "mpi" else ("--quick",)
    return run_launcher(launcher, target, out, *options, ranks=2, timeout=timeout)


def test_killed_rank_is_named(launcher: Launcher, broken, tmp_path: pathlib.Path) -> None:
    check = _run(launcher, broken(KILL), tmp_path, timeout=LIMIT)
    assert not check.passed
    culprit, other = check.failures
    assert culprit == f"rank 1 died (signal 9) in {OPERATION}"
    assert other.startswith(f"rank 0 was waiting in {OPERATION}")
    assert check.log.is_file()
    assert _processes_of(tmp_path) == []


@pytest.fixture(scope="module")
def hang_limit(built_horovod) -> float:
    """Seconds after which a launch is taken to hang; ranks must reach the fault in them."""
    report = json.loads((built_horovod.report / "report.json").read_text())
    return max(25.0, *(2 * check["seconds"] for check in report["checks"]))


def test_hung_rank_is_named_and_nothing_is_left(
    broken, hang_limit: float, tmp_path: pathlib.Path
) -> None:
    """Under one launcher: what ends the ranks is ours, and the same for each."""
    begin = time.monotonic()
    check = _run(GLOO, broken(HANG), tmp_path, timeout=hang_limit)
    assert time.monotonic() - begin < 2 * hang_limit
    culprit, *others = check.failures
    assert re.match(rf"rank 1 hung in {OPERATION}, killed after \d+ s", culprit)
    assert "sitecustomize.py" in culprit  # the place where it slept
    assert others == [f"rank 0 was waiting in {OPERATION}"]
    assert check.log.is_file()
    assert _processes_of(tmp_path) == []


# What a rank says of its own results is the same under each launcher: one is enough for these.
def test_wrong_sum_is_named(broken, tmp_path: pathlib.Path) -> None:
    check = _run(GLOO, broken(WRONG), tmp_path, timeout=LIMIT)
    (failure,) = check.failures
    assert failure.startswith(f"rank 1: wrong result in {OPERATION}: expected ")
    assert "max difference 0.5" in failure
    assert "1000 of 1000 elements differ" in failure
    assert check.log.is_file()
    # The other operations still ran, on both ranks.
    wrong = [row for row in check.operations if row["ok"] != {"0": True, "1": True}]
    assert [(row["operation"], row["ok"]) for row in wrong] == [
        ("allreduce sum", {"0": True, "1": False})
    ]
    assert check.operations[-1]["operation"].startswith("reducescatter")


def test_every_check_can_fail(broken, tmp_path: pathlib.Path) -> None:
    check = _run(MPIRUN, broken(EVERYTHING), tmp_path, timeout=LIMIT)
    # These are about the MPI library and Python packages, not about a result of Horovod.
    sound = ("import of", "tensors on", "bandwidth of", "mpi4py world", "mpi4py thread level")
    passed = {row["operation"] for row in check.operations if row["ok"]["1"] is not False}
    assert {name for name in passed if not name.startswith(sound)} == set()
    assert all("wrong result" in failure for failure in check.failures)


def test_ranks_in_separate_worlds_are_told_apart(built_horovod, tmp_path: pathlib.Path) -> None:
    """What an ``mpirun`` of another MPI does: every process is rank 0 of 1."""
    directory = tmp_path / "bin"
    directory.mkdir()
    foreign = directory / "mpirun"
    foreign.write_text('#!/bin/sh\nshift 2\n"$@" & "$@" & wait\n')  # shift: -np 2
    foreign.chmod(0o755)
    target = _with_path(built_horovod.target, "PATH", directory)
    assert find_program(target, "mpirun") == str(foreign)
    check = _run(MPIRUN, target, tmp_path, timeout=LIMIT)
    # Some MPI libraries refuse to start without their own mpirun.
    assert "separate worlds of size 1" in check.failures[0] or " in init" in check.failures[0]
    (provenance,) = [text for text in check.failures if str(foreign) in text]
    assert "Horovod links /" in provenance
