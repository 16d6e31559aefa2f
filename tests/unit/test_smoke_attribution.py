"""Who is blamed, from the records that ranks leave."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Optional

import pytest

from hvd.smoke import attribution, records
from hvd.smoke.launch import LAUNCHERS, PROGRAM, Launch

SUM = {"operation": "allreduce sum", "dtype": "float32", "elements": 1000}
MAX = {"operation": "allreduce max", "dtype": "int32", "elements": 3}
BARRIER = {"operation": "barrier", "dtype": None, "elements": None}
MPI = "/opt/mpi/lib/libmpi.so.40"
SYNCHRONIZE = "/site-packages/horovod/torch/mpi_ops.py"


class Records:
    """Writes what the processes of a launch would have written."""

    def __init__(self, out: pathlib.Path) -> None:
        self.out = out

    def rank(
        self,
        rank: int,
        *ended: dict,
        current: Optional[dict] = None,
        error: Optional[str] = None,
        size: int = 2,
        done: bool = False,
        name: str = "",
    ) -> None:
        """A rank that ended some operations, and is in ``current``."""
        first = {"event": "init", "rank": rank, "size": size, "host": "a", "pid": 100 + rank}
        if name:
            first["pid"] += 1
        events: list[dict[str, Any]] = [{**first, "mpi_libraries": [MPI]}]
        for operation in ended:
            events.append({"event": "start", **operation})
            end = {"seconds": 0.1, "ok": True, "detail": "", **operation}
            events.append({"event": "end", **end})
        if current:
            events.append({"event": "start", **current})
        if error:
            kind, _, detail = error.partition(": ")
            events.append({"event": "error", **(current or {}), "kind": kind, "detail": detail})
        if done:
            events.append({"event": "done"})
        self.write(f"rank-{rank}{name}.jsonl", events)

    def launch(self, rank: Optional[int], pid: int, current: str) -> None:
        """A process that is not a rank yet."""
        launch = {"event": "launch", "host": "a", "pid": pid, "launcher_rank": rank}
        start = {"event": "start", "operation": current, "dtype": None, "elements": None}
        loaded = {"event": "loaded", "mpi_libraries": [MPI]}
        self.write(f"launch-a-{pid}.jsonl", [launch, loaded, start])

    def write(self, name: str, events: list) -> None:
        (self.out / name).write_text("".join(json.dumps(event) + "\n" for event in events))

    def exit(
        self, pid: int, status: Optional[int] = None, signal: Optional[int] = None, told=False
    ) -> None:
        ending = {"signal": signal, "status": status, "told_to_end": told}
        (self.out / f"exit-a-{pid}.json").write_text(json.dumps(ending))

    def stack(self, pid: int, file: str, function: str, fatal: str = "") -> None:
        text = f"Fatal Python error: {fatal}\n\n" if fatal else ""
        text += "Stack (most recent call first):\n"
        text += f'  File "{file}", line 7 in {function}\n  File "main.py", line 1 in main\n'
        (self.out / f"stack-a-{pid}.txt").write_text(text)

    def failures(self, status: Optional[int] = 1, log: str = "", launcher: int = 0) -> list[str]:
        """What is made of it, for an exit status of the launcher; None if it was killed."""
        path = self.out / "log.txt"
        path.write_text(log)
        chosen = LAUNCHERS[launcher]
        mpirun = "/usr/bin/mpirun" if chosen.controller == "mpi" else None
        executable = f"/usr/bin/{chosen.program}"
        launch = Launch(chosen, executable, mpirun, 2, status, 30.2, path)
        return attribution.failures(launch, records.read(self.out))


@pytest.fixture
def left(tmp_path: pathlib.Path) -> Records:
    return Records(tmp_path)


def test_nothing_to_say_of_a_sound_launch(left: Records) -> None:
    for rank in (0, 1):
        left.rank(rank, SUM, MAX, done=True)
        left.exit(100 + rank, status=0)
    assert left.failures(status=0) == []


@pytest.mark.parametrize(
    "other",
    ["terminated", "terminated, its parent first", "killed with its parent", "left by Horovod"],
)
def test_dead_rank_comes_before_the_waiting_one(left: Records, other: str) -> None:
    consequence = "HorovodInternalError: Horovod has been shut down." if "Horovod" in other else ""
    left.rank(0, MAX, current=SUM, error=consequence)
    left.rank(1, MAX, current=SUM)
    left.exit(101, signal=9)
    if other.startswith("terminated"):
        left.exit(100, signal=15, told="first" in other)
    culprit, waiting = left.failures()
    assert culprit == "rank 1 died (signal 9) in allreduce sum float32 x 1000"
    assert waiting.startswith("rank 0 was waiting in allreduce sum float32 x 1000")
    assert waiting.endswith("and failed with HorovodInternalError") == bool(consequence)


def test_crash_says_where(left: Records) -> None:
    left.rank(0, current=SUM)
    left.rank(1, MAX, current=SUM)
    left.exit(101, signal=11)
    left.stack(101, "/x/torch/nn.py", "linear", fatal="Segmentation fault")
    assert left.failures()[0] == (
        "rank 1 died (signal 11: Segmentation fault) in allreduce sum float32 x 1000,"
        " at /x/torch/nn.py:7 in linear"
    )


def test_early_exit_is_a_death(left: Records) -> None:
    left.rank(0, SUM, current=BARRIER)
    left.rank(1, SUM)
    left.exit(101, status=0)
    assert left.failures() == [
        "rank 1 ended with exit status 0 after allreduce sum float32 x 1000",
        "rank 0 was waiting in barrier",
    ]


def test_death_that_the_launcher_does_not_notice(left: Records) -> None:
    """MPICH lets the others wait for a rank that exits with a status, until the time limit."""
    left.rank(0, current=SUM)
    left.rank(1, current=SUM)
    left.exit(100, signal=15, told=True)
    left.exit(101, status=4)
    assert left.failures(status=None) == [
        "rank 1 ended with exit status 4 in allreduce sum float32 x 1000",
        "rank 0 was waiting in allreduce sum float32 x 1000",
    ]


@pytest.mark.parametrize(
    "ending, text",
    [({"signal": 11}, "died (signal 11)"), ({"status": 3}, "ended with exit status 3")],
)
def test_failure_after_the_last_operation_is_a_death(
    left: Records, ending: dict, text: str
) -> None:
    left.rank(0, SUM, done=True)
    left.rank(1, SUM, done=True)
    left.exit(101, **ending)
    assert left.failures() == [f"rank 1 {text} after allreduce sum float32 x 1000"]


def test_rank_killed_after_it_was_told_to_end_did_not_die(left: Records) -> None:
    """It hung, did not heed SIGTERM, and was killed."""
    left.rank(0, SUM, MAX, current=BARRIER)
    left.rank(1, SUM, current=MAX)
    left.exit(101, signal=9, told=True)
    assert left.failures(status=None) == [
        "rank 1 hung in allreduce max int32 x 3, killed after 30 s",
        "rank 0 was waiting in barrier",
    ]


def test_hung_rank_is_the_one_that_is_not_in_horovod(left: Records) -> None:
    for rank in (0, 1):
        left.rank(rank, MAX, current=SUM)
        left.exit(100 + rank, signal=15, told=True)
    left.stack(100, "/x/busy.py", "loop")
    left.stack(101, SYNCHRONIZE, "synchronize")
    assert left.failures(status=None) == [
        "rank 0 hung in allreduce sum float32 x 1000, killed after 30 s, at /x/busy.py:7 in loop",
        "rank 1 was waiting in allreduce sum float32 x 1000",
    ]


@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("<string>", "horovod_allreduce"),
        ("/x/site-packages/tensorflow/python/eager/execute.py", "quick_execute"),
        ("/x/site-packages/mxnet/ndarray/ndarray.py", "asnumpy"),
    ],
)
def test_a_rank_that_waits_in_its_framework_did_not_hang(left: Records, file, function) -> None:
    left.rank(0, current=SUM)
    left.rank(1, current=SUM)
    left.stack(100, file, function)
    left.stack(101, "/home/user/data.py", "load")
    first, second = left.failures(status=None)
    assert first.startswith("rank 1 hung")
    assert second.startswith("rank 0 was waiting")


def test_hung_rank_is_not_the_one_that_waits_in_mpi(left: Records) -> None:
    """The program calls MPI itself, through mpi4py."""
    for rank in (0, 1):
        left.rank(rank, current=SUM)
    left.stack(100, str(PROGRAM.with_name("program_mpi4py.py")), "by_mpi")
    left.stack(101, "/x/busy.py", "loop")
    assert left.failures(status=None)[0].startswith("rank 1 hung in allreduce sum")


@pytest.mark.parametrize("prefix", ["", "[0]<stderr>:", "[1,0]<stderr>:", "[0] "])
def test_stall_inspector_decides_where_stacks_do_not(left: Records, prefix: str) -> None:
    for rank in (0, 1):
        left.rank(rank, MAX, current=SUM)
        left.stack(100 + rank, SYNCHRONIZE, "synchronize")
    warning = (
        f"{prefix}Missing ranks:\n{prefix}{{}}: [allreduce sum]\n{prefix}done\n0: [other output]\n"
    )
    log = warning.format(0) + warning.format(1)  # the last one counts
    assert left.failures(status=None, log=log)[0].startswith("rank 1 hung in allreduce sum")


def test_all_ranks_are_named_where_nothing_tells_them_apart(left: Records) -> None:
    for rank in (0, 1):
        left.rank(rank, MAX, current=SUM)
        left.stack(100 + rank, SYNCHRONIZE, "synchronize")
    place = f"killed after 30 s, at {SYNCHRONIZE}:7 in synchronize"
    assert left.failures(status=None) == [
        f"rank {rank} hung in allreduce sum float32 x 1000, {place}" for rank in (0, 1)
    ]


def test_rank_that_hangs_in_init_is_known_by_its_launcher(left: Records) -> None:
    left.launch(0, 100, "init")
    left.launch(1, 101, "import of horovod.torch")
    left.stack(100, "/x/horovod/common/basics.py", "init")
    left.stack(101, "/x/torch/__init__.py", "<module>")
    assert left.failures(status=None) == [
        "rank 1 hung in import of horovod.torch, killed after 30 s,"
        " at /x/torch/__init__.py:7 in <module>",
        f"the mpirun was /usr/bin/mpirun, and Horovod links {MPI}; they must be of one MPI",
        "rank 0 was waiting in init",
    ]


def test_rank_in_init_is_behind_one_in_an_operation(left: Records) -> None:
    left.rank(0, current=SUM)
    left.launch(1, 101, "init")
    assert left.failures(status=None)[0] == "rank 1 hung in init, killed after 30 s"


def test_process_without_any_rank_is_named_by_host_and_pid(left: Records) -> None:
    left.launch(None, 100, "init")
    left.exit(100, status=1)
    assert left.failures() == [
        "process 100 on a (rank not known yet) ended with exit status 1 in init",
        f"the mpirun was /usr/bin/mpirun, and Horovod links {MPI}; they must be of one MPI",
        "only 1 of 2 processes left a record",
    ]


def test_exception_comes_before_its_consequence(left: Records) -> None:
    left.rank(0, MAX, current=SUM, error="HorovodInternalError: Horovod has been shut down.")
    left.rank(1, MAX, current=SUM, error="ValueError: no such type")
    for rank in (0, 1):
        left.exit(100 + rank, status=1)
    assert left.failures() == [
        "rank 1 raised ValueError in allreduce sum float32 x 1000: no such type",
        "rank 0 was waiting in allreduce sum float32 x 1000 and failed with HorovodInternalError",
    ]


def test_tensorflows_exception_is_a_consequence_too(left: Records) -> None:
    left.rank(0, current=SUM, error="UnknownError: {{node}} Horovod has been shut down. This")
    left.rank(1, current=SUM, error="ValueError: no data")
    first, second = left.failures()
    assert first.startswith("rank 1 raised ValueError")
    assert second.startswith("rank 0 was waiting") and "UnknownError" in second


def test_exception_of_horovod_on_all_ranks_is_the_cause(left: Records) -> None:
    for rank in (0, 1):
        left.rank(rank, current=SUM, error="HorovodInternalError: MPI_Allreduce failed")
        left.exit(100 + rank, status=1)
    text = "raised HorovodInternalError in allreduce sum float32 x 1000: MPI_Allreduce failed"
    assert left.failures() == [f"rank 0 {text}", f"rank 1 {text}"]


def test_wrong_result_says_what_was_expected(left: Records) -> None:
    left.rank(0, SUM, MAX, done=True)
    wrong = {**SUM, "ok": False, "detail": "expected 1.0, got 1.5 at element 0"}
    left.rank(1, wrong, MAX, done=True)
    left.exit(100, status=0)
    left.exit(101, status=1)
    assert left.failures() == [
        "rank 1: wrong result in allreduce sum float32 x 1000: expected 1.0, got 1.5 at element 0"
    ]


def test_ranks_alone_in_their_worlds(left: Records) -> None:
    left.rank(0, size=1)
    left.rank(0, size=1, name=".a-101")
    assert left.failures() == [
        "expected one world of 2 ranks, got separate worlds of size 1:"
        f" the mpirun was /usr/bin/mpirun, and Horovod links {MPI}; they must be of one MPI"
    ]


def test_separate_worlds_without_mpi_name_the_launcher(left: Records) -> None:
    left.rank(0, size=1)
    (failure,) = left.failures(launcher=2)
    assert failure.endswith("the launcher was /usr/bin/horovodrun")


def test_absent_record_is_a_failure_even_if_the_launcher_is_content(left: Records) -> None:
    left.rank(0, SUM, done=True)
    assert left.failures(status=0) == [
        "rank 1 left no record: it was not started, or ended before it could write"
    ]


@pytest.mark.parametrize(
    "status, ending",
    [(1, "exited with status 1"), (0, "exited with status 0"), (None, "was killed")],
)
def test_launcher_that_starts_nothing(left: Records, status: Optional[int], ending: str) -> None:
    assert left.failures(status=status, launcher=1) == [
        f"horovodrun --mpi {ending} after 30 s, and no rank had left a record"
    ]


def test_unfinished_ranks_without_a_culprit_were_terminated(left: Records) -> None:
    """The launcher itself gave up."""
    for rank in (0, 1):
        left.rank(rank, current=SUM)
        left.exit(100 + rank, signal=15, told=True)
    assert left.failures(status=-11) == [
        f"rank {rank} was terminated in allreduce sum float32 x 1000" for rank in (0, 1)
    ]


@pytest.mark.parametrize(
    "status, failure",
    [
        (3, "mpirun exited with status 3 although no rank failed"),
        (None, "mpirun did not end although every rank did; killed after 30 s"),
    ],
)
def test_launcher_fails_alone(left: Records, status: Optional[int], failure: str) -> None:
    for rank in (0, 1):
        left.rank(rank, SUM, done=True)
        left.exit(100 + rank, status=0)
    assert left.failures(status=status) == [failure]


def test_line_that_a_rank_died_in_is_ignored(left: Records) -> None:
    left.rank(0, current=SUM)
    left.rank(1, current=SUM)
    with open(left.out / "rank-1.jsonl", "a") as file:
        file.write('{"event": "end", "operat')
    left.exit(101, signal=9)
    assert left.failures()[0] == "rank 1 died (signal 9) in allreduce sum float32 x 1000"
