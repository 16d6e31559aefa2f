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
from typing import List

import psutil
import pytest

from hvd.smoke.launch import LAUNCHERS, Launcher, Target, find_program
from hvd.smoke.run import Check, run_launcher
from tests.checkout import script

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
    # with the splits that came in, where splits are given
    spoil("alltoall", lambda got: (got[0] + 1, got[1]) if type(got) is tuple else got + 1)
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


@pytest.fixture
def faulty(built_horovod, tmp_path):
    """A function that runs the smoke test with a fault; nothing of it may be left afterwards."""

    def check(fault: str, launcher: Launcher = GLOO, timeout: float = LIMIT) -> Check:
        directory = tmp_path / "fault"
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(SITECUSTOMIZE.replace("FAULT", fault))
        target = first_in(built_horovod.target, "PYTHONPATH", directory)
        options = ("--quick", "--mpi4py") if launcher.controller == "mpi" else ("--quick",)
        found = run_launcher(launcher, target, tmp_path, *options, ranks=2, timeout=timeout)
        assert found.failures and found.log.is_file()
        assert processes_of(tmp_path) == []
        return found

    return check


def first_in(target: Target, variable: str, directory: pathlib.Path) -> Target:
    """``target`` with a directory at the beginning of a list of them."""
    value = os.pathsep.join(filter(None, [str(directory), target.environment.get(variable)]))
    return Target(target.python, {**target.environment, variable: value})


def processes_of(out: pathlib.Path) -> List[str]:
    """Command lines of the processes that name ``out``."""
    every = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    return [" ".join(words) for words in every if any(str(out) in word for word in words)]


@pytest.mark.parametrize("launcher", [MPIRUN, GLOO], ids=lambda launcher: launcher.name)
def test_killed_rank_is_named(faulty, launcher):
    culprit, other = faulty(KILL, launcher).failures
    assert re.match(rf"rank 1 on \S+ died of signal 9 \(Killed\) in {OPERATION}", culprit)
    assert re.match(rf"rank 0 on \S+ .* in {OPERATION}", other)


def test_hung_rank_is_named_and_nothing_is_left(faulty, built_horovod):
    """Under one launcher: what ends the ranks is the same for each."""
    report = json.loads((built_horovod.report / "report.json").read_text())
    # ranks must reach the fault in this time
    limit = max(25.0, *(2 * check["seconds"] for check in report["checks"]))
    begin = time.monotonic()
    culprit, other = faulty(HANG, timeout=limit).failures
    assert time.monotonic() - begin < 2 * limit
    assert re.match(rf"rank 1 on \S+ hung in {OPERATION}, at .*sitecustomize.py", culprit)
    assert re.match(rf"rank 0 on \S+ was waiting in {OPERATION}", other)


# What a rank says of its own results is the same under each launcher: one is enough for these.
def test_wrong_sum_is_named(faulty):
    check = faulty(WRONG)
    (failure,) = check.failures
    assert re.match(rf"rank 1 on \S+: wrong result in {OPERATION}: expected ", failure)
    assert "max difference 0.5" in failure
    assert "1000 of 1000 elements differ" in failure
    # the other operations still ran, on both ranks
    wrong = [row for row in check.operations if row["ok"] != {"0": True, "1": True}]
    assert [(row["operation"], row["ok"]) for row in wrong] == [
        ("allreduce sum", {"0": True, "1": False})
    ]
    assert any(row["operation"].startswith("reducescatter") for row in check.operations)


def test_every_check_can_fail(faulty):
    check = faulty(EVERYTHING, MPIRUN)
    # these are about the MPI library and Python packages, not about a result of Horovod
    sound = ("import of", "tensors on", "bandwidth of", "mpi4py world", "mpi4py thread level")
    passed = {row["operation"] for row in check.operations if row["ok"]["1"] is not False}
    assert {name for name in passed if not name.startswith(sound)} == set()
    assert all("wrong result" in failure for failure in check.failures)


def test_ranks_in_separate_worlds_are_told_apart(built_horovod, tmp_path):
    """What an ``mpirun`` of another MPI does: every process is rank 0 of 1."""
    foreign = script(tmp_path / "bin" / "mpirun", 'shift 2; "$@" & "$@" & wait')  # -np 2
    target = first_in(built_horovod.target, "PATH", foreign.parent)
    assert find_program(target, "mpirun") == str(foreign)
    options = ("--quick", "--mpi4py")
    check = run_launcher(MPIRUN, target, tmp_path, *options, ranks=2, timeout=LIMIT)
    # some MPI libraries refuse to start without their own mpirun
    assert "separate worlds of size 1" in check.failures[0] or " in init" in check.failures[0]
    (provenance,) = [text for text in check.failures if str(foreign) in text]
    assert "Horovod links /" in provenance
