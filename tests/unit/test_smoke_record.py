"""The record of a process that ends by itself, dies, or is told to end."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from hvd.smoke import program_record, records

#: Seconds after which a process that should have ended is taken to hang.
LIMIT = 30.0

PRELUDE = """
import os, pathlib, signal, sys, time
sys.path.insert(0, os.environ["SMOKE"])
from program_record import Recorder, supervise
out = pathlib.Path(sys.argv[1])
supervise(out)
"""
RECORD = PRELUDE + "recorder = Recorder(out)\n"
RANK = RECORD + "recorder.check('init', int)\nrecorder.initialised(1, 2)\n"
HANG = """
def stuck():
    pathlib.Path(out, "here").touch()
    time.sleep(60)
recorder.check("barrier", stuck)
"""


def start(code: str, out: pathlib.Path, **environment: str) -> subprocess.Popen:
    """Start a process that records in ``out``."""
    smoke = str(pathlib.Path(program_record.__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(out)], env={"SMOKE": smoke, **environment}
    )


def start_to_hang(out: pathlib.Path) -> subprocess.Popen:
    """Start a rank and return when it hangs."""
    process = start(RANK + HANG, out)
    deadline = time.monotonic() + LIMIT
    while not (out / "here").exists():
        assert time.monotonic() < deadline, "the process did not start"
        time.sleep(0.01)
    return process


def test_operations_are_recorded_in_order(tmp_path: pathlib.Path) -> None:
    code = RANK + (
        'recorder.check("sum", lambda: 3, lambda r: "", "float32", 7)\n'
        'recorder.check("max", lambda: 3, lambda r: f"expected 4, got {r}")\n'
        'recorder.emit("bandwidth", bytes=4)\n'
        'recorder.emit("done", done=True)\n'
        "sys.exit(recorder.failed)\n"
    )
    assert start(code, tmp_path).wait(timeout=LIMIT) == 1
    (rank,) = records.read(tmp_path)
    assert (rank.rank, rank.size, rank.done, rank.status) == (1, 2, True, 1)
    assert [str(operation) for operation in rank.operations] == ["sum float32 x 7", "max"]
    assert [operation.ok for operation in rank.operations] == [True, False]
    assert rank.wrong[0].detail == "expected 4, got 3"
    assert rank.bandwidth == [{"bytes": 4}]
    assert rank.started == 3  # with init


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV])
def test_death_by_signal_is_recorded_and_passed_on(
    tmp_path: pathlib.Path, number: signal.Signals
) -> None:
    code = RANK + f'recorder.check("sum", lambda: os.kill(os.getpid(), {int(number)}))'
    assert start(code, tmp_path).wait(timeout=LIMIT) == -number
    (rank,) = records.read(tmp_path)
    assert (rank.signal, rank.status, rank.told_to_end) == (number, None, False)
    assert rank.where == "in sum"
    assert bool(rank.crash) == (number != signal.SIGKILL)


@pytest.mark.parametrize(
    "code, where",
    [
        (RECORD + 'recorder.check("init", lambda: os._exit(7))', "in init"),
        (
            RECORD + "os.write(recorder._file.fileno(), b'{'); os._exit(7)",
            "before its first operation",
        ),
        (PRELUDE + "os._exit(7)", "before its first operation"),
    ],
)
def test_exit_status_is_recorded_and_passed_on(tmp_path, code: str, where: str) -> None:
    assert start(code, tmp_path, OMPI_COMM_WORLD_RANK="1").wait(timeout=LIMIT) == 7
    (rank,) = records.read(tmp_path)
    assert (rank.rank, rank.launcher_rank, rank.status) == (None, 1, 7)
    assert (rank.label, rank.where) == ("rank 1", where)


@pytest.mark.parametrize("order", [["parent"], ["parent", "rank"], ["rank", "parent"]])
def test_sigterm_ends_the_rank_and_leaves_its_stack(tmp_path: pathlib.Path, order: list) -> None:
    process = start_to_hang(tmp_path)
    pids = {"parent": process.pid, "rank": records.read(tmp_path)[0].pid}
    for name in order:  # as one signals a process group, and more than once
        os.kill(pids[name], signal.SIGTERM)
        os.kill(pids[name], signal.SIGTERM)
    assert process.wait(timeout=LIMIT) == -signal.SIGTERM
    (rank,) = records.read(tmp_path)
    assert rank.told_to_end
    assert rank.signal is not None
    assert "stuck" in [frame.function for frame in rank.stack]
    assert not rank.crash


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
def test_rank_dies_with_its_parent(tmp_path: pathlib.Path) -> None:
    """As when a launcher kills the process that it started and knows no other."""
    process = start_to_hang(tmp_path)
    (rank,) = records.read(tmp_path)
    process.kill()
    process.wait(timeout=LIMIT)
    status = pathlib.Path(f"/proc/{rank.pid}/status")
    deadline = time.monotonic() + LIMIT
    while status.exists() and "State:\tZ" not in status.read_text():
        assert time.monotonic() < deadline, "the rank outlived its parent"
        time.sleep(0.01)
    (rank,) = records.read(tmp_path)
    assert (rank.signal, rank.status) == (None, None)


def test_two_processes_of_one_rank_leave_two_records(tmp_path: pathlib.Path) -> None:
    processes = [start(RANK, tmp_path) for _ in range(2)]
    assert [process.wait(timeout=LIMIT) for process in processes] == [0, 0]
    assert [rank.rank for rank in records.read(tmp_path)] == [1, 1]


def test_exception_is_recorded_with_its_operation(tmp_path: pathlib.Path) -> None:
    code = RANK + (
        'try: recorder.check("sum", lambda: 1 / 0, None, "int32", 3)\n'
        "except ZeroDivisionError as error: recorder.error(error)\n"
    )
    assert start(code, tmp_path).wait(timeout=LIMIT) == 0
    (rank,) = records.read(tmp_path)
    assert rank.error == {"kind": "ZeroDivisionError", "detail": "division by zero"}
    assert rank.where == "in sum int32 x 3"
