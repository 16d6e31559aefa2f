"""What ranks record, and what is found of a launch from it."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from hvd.smoke import program, records
from hvd.smoke.launch import LAUNCHERS, Launch
from hvd.smoke.records import Operation, Rank

#: Seconds after which a process that should have ended is taken to hang.
LIMIT = 30.0
SUM, MAX, BARRIER = (
    Operation("allreduce sum", "float32", 1000),
    Operation("max"),
    Operation("barrier"),
)
ENDED = {"operations": [Operation("allreduce sum", ok=True)], "done": True, "status": 0}
SHUT_DOWN = {"kind": "HorovodInternalError", "detail": "Horovod has been shut down."}
MPI = "/opt/mpi/lib/libmpi.so.40"
KILLED = {"operations": [SUM], "signal": signal.SIGKILL}
WAITS = {"operations": [SUM], "waits": True, "place": "/horovod/torch/mpi_ops.py:7 in synchronize"}
TERMINATED = {"operations": [SUM], "signal": signal.SIGTERM}


def failures(*ranks: dict, status=1, launcher=0) -> list:
    """What is found for ranks whose records have these fields."""
    chosen = LAUNCHERS[launcher]
    mpirun = "/usr/bin/mpirun" if chosen.controller == "mpi" else None
    executable = f"/usr/bin/{chosen.program}"
    launch = Launch(chosen, executable, mpirun, 2, status, 30.2, pathlib.Path("log"))
    known = {"host": "a", "size": 2, "mpi_libraries": [MPI]}
    made = [Rank(**{**known, "rank": place, **each}) for place, each in enumerate(ranks)]
    return records.failures(launch, made)


@pytest.mark.parametrize(
    ("ranks", "status", "first"),
    [
        ([ENDED, ENDED], 0, None),
        ([ENDED, {**ENDED, "operations": [Operation("max", ok=False, detail="x")]}], 1,
         r"rank 1 on a: wrong result in max: x"),
        ([WAITS, {**KILLED, "signal": 11, "crash": "Segmentation fault"}], 1,
         r"rank 1 on a died of signal 11 \(Segmentation fault\) in allreduce sum float32 x 1000"),
        # whatever the launcher does to the other one
        *(([other, KILLED], 1, r"rank 1 on a died of signal 9 \(Killed\) in allreduce sum")
          for other in (WAITS, TERMINATED, {"operations": [SUM]},
                        {"operations": [SUM], "error": SHUT_DOWN, "status": 1},
                        {"operations": [SUM], "error": {**SHUT_DOWN, "kind": "UnknownError"}})),
        # an exit without a result
        ([WAITS, {"operations": [Operation("max", ok=True)], "status": 0}], 0,
         r"rank 1 on a exited with status 0 after max"),
        ([TERMINATED, {"operations": [SUM], "status": 4}], 1, r"rank 1 on a exited with status 4"),
        ([ENDED, {**ENDED, "signal": 11, "status": None}], 1, r"rank 1 on a died of signal 11"),
        ([ENDED, {**ENDED, "status": 3}], 1, r"rank 1 on a exited with status 3"),
        # hung: the one that does not wait for others, or is behind them
        *(([{**WAITS, "hung": True}, {"operations": [SUM], "hung": hung, "place": "x.py:3 in f"}],
           status, r"rank 1 on a hung in allreduce sum float32 x 1000, at x.py:3 in f")
          for hung, status in ((True, 1), (False, None))),
        ([{**WAITS, "started": 2, "hung": True}, {**WAITS, "started": 1}], 1, r"rank 1 on a hung"),
        ([{**WAITS, "hung": True}, WAITS], 1, r"rank 0 on a hung"),
        ([{**WAITS, "hung": True}, ENDED], 1, r"rank 0 on a hung"),
        # an exception before its consequence; one that all ranks have is the cause
        ([{"operations": [SUM], "error": SHUT_DOWN, "status": 1},
          {"operations": [MAX], "error": {"kind": "ValueError", "detail": "x\ny"}}], 1,
         r"rank 1 on a raised ValueError: x y, in max"),
        ([{"operations": [SUM], "error": SHUT_DOWN}] * 2, 1,
         r"rank 0 on a failed with HorovodInternalError in allreduce"),
        ([TERMINATED, TERMINATED], -11, r"rank 0 on a was waiting in allreduce sum"),
        # the launcher fails alone, or does not end
        ([ENDED, ENDED], 3, r"mpirun exited with status 3 although no rank failed"),
        ([ENDED, ENDED], None, r"mpirun was killed after 30 s although no rank failed"),
        # a record is missing, whatever the launcher says
        ([ENDED], 0, r"mpirun exited with status 0, and only 1 of 2 ranks left a record"),
        ([], 0, r"mpirun exited with status 0, and only 0 of 2 ranks left a record"),
        ([], None, r"mpirun was killed after 30 s, and only 0 of 2 ranks left a record"),
        # worlds of their own
        ([{**ENDED, "size": 1, "rank": 0}] * 2, 0, r"expected one world of 2 .* size 1"),
    ],
)  # fmt: skip
def test_the_cause_comes_first(ranks, status, first) -> None:
    found = failures(*ranks, status=status)
    assert bool(found) == bool(first)
    assert not first or re.match(first, found[0]), found


def test_the_others_are_named_behind_the_cause() -> None:
    assert failures(WAITS, KILLED)[1].startswith("rank 0 on a was waiting in allreduce sum")
    waits, hung = {**WAITS, "hung": True}, {"operations": [SUM], "hung": True}
    assert len(failures(waits, hung)) == 2
    # the hung rank is ended first, and the other one may still say so
    _, other = failures({**waits, "error": SHUT_DOWN}, hung)
    assert other.startswith("rank 0 on a was waiting in allreduce sum")


@pytest.mark.parametrize(("launcher", "named"), [(0, MPI), (2, "/usr/bin/horovodrun")])
def test_a_launcher_of_another_mpi_is_named(launcher: int, named: str) -> None:
    alone = {"size": 1, "rank": 0}
    early = {"rank": None, "launcher_rank": 1, "operations": [Operation("init")], "status": 1}
    assert named in failures(alone, alone, launcher=launcher)[0]
    found = failures(WAITS, early, launcher=launcher)
    assert found[0].startswith("rank 1 on a exited with status 1 in init") and named in found[1]


@pytest.mark.parametrize(
    ("file", "function", "waits"),
    [
        ("/site-packages/horovod/torch/mpi_ops.py", "synchronize", True),
        ("<string>", "horovod_allreduce", True),
        ("/site-packages/tensorflow/python/eager/execute.py", "quick_execute", True),
        ("/site-packages/mxnet/ndarray/ndarray.py", "asnumpy", True),
        (str(program.__file__), "check", True),
        ("/x/torch/__init__.py", "<module>", False),
        ("<string>", "loop", False),
    ],
)
def test_where_a_rank_waits_for_others(tmp_path, file: str, function: str, waits: bool) -> None:
    stack = f'Stack (most recent call first):\n  File "{file}", line 7 in {function}\n'
    other = 'Thread 0x1 (most recent call first):\n  File "other.py", line 1 in x\n'
    (tmp_path / "process-a-1.txt").write_text(f"Timeout (0:00:01)!\n{other}\n{stack}")
    (rank,) = records.read(tmp_path)
    assert (rank.hung, rank.waits, rank.place) == (True, waits, f"{file}:7 in {function}")


RANK = """
import argparse, os, pathlib, signal, sys, time
sys.path.insert(0, os.environ["SMOKE"])
import program
out = pathlib.Path(sys.argv[1])
def work(recorder, arguments):
    recorder.check("init", int)
    recorder.emit("init", rank=1, size=2)
    program.faulthandler.enable(file=recorder.file, all_threads=False)
    BODY
    recorder.emit("done", done=True)
    return 1 if recorder.failed else 0
program.work, program.GRACE = work, 1
program.supervise(out)
sys.exit(program.run(argparse.Namespace(out=out, limit=int(os.environ.get("LIMIT", "600")))))
"""


def start(body: str, out: pathlib.Path, **environment: str) -> subprocess.Popen:
    """Start a process that records in ``out``."""
    smoke = str(pathlib.Path(program.__file__).parent)
    code = RANK.replace("BODY", body)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(out)], env={"SMOKE": smoke, **environment}
    )


def test_operations_are_recorded_in_order(tmp_path: pathlib.Path) -> None:
    body = """
    recorder.check("sum", lambda: 3, lambda r: "", "float32", 7)
    recorder.check("max", lambda: 3, lambda r: "expected 4")
    recorder.emit("bandwidth", bytes=4)"""
    assert start(body, tmp_path, PMI_RANK="1").wait(timeout=LIMIT) == 1
    (rank,) = records.read(tmp_path)
    assert (rank.rank, rank.launcher_rank, rank.size, rank.done, rank.status) == (1, 1, 2, True, 1)
    assert [str(operation) for operation in rank.operations] == ["sum float32 x 7", "max"]
    assert [operation.ok for operation in rank.operations] == [True, False]
    assert (rank.bandwidth, rank.started, rank.fault) == ([{"bytes": 4}], 3, "")


@pytest.mark.parametrize(
    ("body", "status", "fault"),
    [
        *((f"recorder.check('sum', lambda: os.kill(os.getpid(), {int(each)}))", -each,
           f"died of signal {int(each)} ({words})")
          for each, words in ((signal.SIGKILL, "Killed"), (signal.SIGABRT, "Aborted"),
                              (signal.SIGSEGV, "Segmentation fault"))),
        ("recorder.check('sum', lambda: os._exit(7))", 7, "exited with status 7"),
        # within a line of the record
        ("os.write(recorder.file.fileno(), b'{'); os._exit(0)", 0, "exited with status 0"),
        ("recorder.check('sum', lambda: 1 / 0)", 1, "raised ZeroDivisionError: division by zero,"),
    ],
)  # fmt: skip
def test_an_end_is_recorded_and_passed_on(tmp_path, body: str, status: int, fault: str) -> None:
    assert start(body, tmp_path).wait(timeout=LIMIT) == status
    (rank,) = records.read(tmp_path)
    assert (rank.fault, rank.done) == (fault, False)


HANG = """
    def stuck():
        (out / "here").touch()
        time.sleep(600)
    recorder.check("barrier", stuck)"""


def test_a_rank_that_hangs_says_where_and_ends(tmp_path: pathlib.Path) -> None:
    assert start(HANG, tmp_path, LIMIT="1").wait(timeout=LIMIT) == -signal.SIGALRM
    (rank,) = records.read(tmp_path)
    assert rank.hung and rank.fault == "" and "in stuck" in rank.where


@pytest.mark.parametrize("order", [["parent"], ["rank"], ["parent", "rank"], ["SIGKILL"]])
def test_a_rank_that_is_told_to_end_says_where(tmp_path: pathlib.Path, order: list) -> None:
    """Also when a launcher ends the process that it started and knows no other."""
    process = start(HANG, tmp_path)
    deadline = time.monotonic() + LIMIT
    while not (tmp_path / "here").exists():
        assert time.monotonic() < deadline, "the process did not start"
        time.sleep(0.01)
    (rank,) = records.read(tmp_path)
    for name in order:
        number = signal.SIGKILL if name == "SIGKILL" else signal.SIGTERM
        os.kill(rank.pid if name == "rank" else process.pid, number)
    assert process.wait(timeout=LIMIT) < 0
    status = pathlib.Path(f"/proc/{rank.pid}/status")
    while status.exists() and "State:\tZ" not in status.read_text():
        assert time.monotonic() < deadline, "the rank outlived its parent"
        time.sleep(0.01)
    (rank,) = records.read(tmp_path)
    assert not rank.hung and rank.fault == "" and rank.where.startswith("in barrier, at ")
