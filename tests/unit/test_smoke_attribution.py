"""The culprits of a launch, from the records that ranks leave."""

from __future__ import annotations

import json
import pathlib
from typing import Optional

import pytest

from hvd.smoke import attribution, records
from hvd.smoke.launch import LAUNCHERS, PROGRAM, Launch

SUM = {"operation": "allreduce sum", "dtype": "float32", "elements": 1000}
MAX = {"operation": "allreduce max", "dtype": "int32", "elements": 3}
BARRIER = {"operation": "barrier", "dtype": None, "elements": None}
INIT = {"operation": "init", "dtype": None, "elements": None}
IMPORT = {"operation": "import of horovod.torch", "dtype": None, "elements": None}
IN_SUM, AFTER_SUM = "in allreduce sum float32 x 1000", "after allreduce sum float32 x 1000"
MPI = "/opt/mpi/lib/libmpi.so.40"
PROVENANCE = f"the mpirun was /usr/bin/mpirun, and Horovod links {MPI}; they must be of one MPI"
SHUT_DOWN = {"kind": "HorovodInternalError", "detail": "Horovod has been shut down."}
SYNCHRONIZE = ("/site-packages/horovod/torch/mpi_ops.py", "synchronize")
LOOP = ("/x/busy.py", "loop")
TOLD = {"signal": 15, "told_to_end": True}


class Records:
    """Writes the records that the processes of a launch would have written."""

    def __init__(self, out: pathlib.Path) -> None:
        self.out = out

    def rank(
        self,
        number: Optional[int],
        *ended: dict,
        current: Optional[dict] = None,
        initialised: bool = True,
        size: int = 2,
        done: bool = False,
        error: Optional[dict] = None,
        stack: tuple = (),
        fatal: str = "",
        exit: Optional[dict] = None,
        pid: int = 100,
    ) -> pathlib.Path:
        """Write the record of a rank that ended some operations, and is in ``current``."""
        pid += number or 0
        events = [
            {"event": "launch", "host": "a", "pid": pid, "launcher_rank": number},
            {"event": "loaded", "mpi_libraries": [MPI]},
        ]
        if initialised:
            events.append({"event": "init", "rank": number, "size": size})
        for operation in ended:
            name = {key: operation[key] for key in SUM}
            events.append({"event": "start", **name})
            events.append({"event": "end", "seconds": 0.1, "ok": True, "detail": "", **operation})
        if current:
            events.append({"event": "start", **current})
        if error:
            events.append({"event": "error", "error": error})
        if done:
            events.append({"event": "done", "done": True})
        lines = [json.dumps(event) for event in events]
        if fatal:
            lines.append(f"Fatal Python error: {fatal}\n")
        if stack:
            lines += [
                "Stack (most recent call first):",
                f'  File "{stack[0]}", line 7 in {stack[1]}',
            ]
            lines.append('  File "main.py", line 1 in main')
        if exit:
            ending = {"signal": None, "status": None, "told_to_end": False, **exit}
            lines.append(json.dumps({"event": "exit", "host": "a", "pid": pid, **ending}))
        path = self.out / f"process-a-{pid}.txt"
        path.write_text("\n".join(lines) + "\n")
        return path

    def failures(self, status: Optional[int] = 1, log: str = "", launcher: int = 0) -> list[str]:
        """Return the findings for an exit status of the launcher, None if it was killed."""
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


def rank(*ended: dict, **more: object) -> tuple:
    return ended, more


#: By name: rank 0 and rank 1, the exit status of the launcher, and the failures.
CASES = {
    "nothing is wrong": (
        rank(SUM, MAX, done=True, exit={"status": 0}),
        rank(SUM, MAX, done=True, exit={"status": 0}),
        0,
        [],
    ),
    "a crash says where": (
        rank(current=SUM),
        rank(
            *(MAX,),
            current=SUM,
            exit={"signal": 11},
            stack=("/x/torch/nn.py", "linear"),
            fatal="Segmentation fault",
        ),
        1,
        [
            f"rank 1 died (signal 11: Segmentation fault) {IN_SUM}, at /x/torch/nn.py:7 in linear",
            f"rank 0 was waiting {IN_SUM}",
        ],
    ),
    "an early exit is a death": (
        rank(SUM, current=BARRIER),
        rank(SUM, exit={"status": 0}),
        1,
        [f"rank 1 ended with exit status 0 {AFTER_SUM}", "rank 0 was waiting in barrier"],
    ),
    "MPICH lets the others wait for a rank that exits with a status": (
        rank(current=SUM, exit=TOLD),
        rank(current=SUM, exit={"status": 4}),
        None,
        [f"rank 1 ended with exit status 4 {IN_SUM}", f"rank 0 was waiting {IN_SUM}"],
    ),
    "a crash after the last operation is a death": (
        rank(SUM, done=True),
        rank(SUM, done=True, exit={"signal": 11}),
        1,
        [f"rank 1 died (signal 11) {AFTER_SUM}"],
    ),
    "a status after the last operation is a death": (
        rank(SUM, done=True),
        rank(SUM, done=True, exit={"status": 3}),
        1,
        [f"rank 1 ended with exit status 3 {AFTER_SUM}"],
    ),
    "a rank that hung and did not heed SIGTERM did not die": (
        rank(SUM, MAX, current=BARRIER),
        rank(SUM, current=MAX, exit={"signal": 9, "told_to_end": True}),
        None,
        [
            "rank 1 hung in allreduce max int32 x 3, killed after 30 s",
            "rank 0 was waiting in barrier",
        ],
    ),
    "all ranks hung if nothing tells them apart": (
        rank(MAX, current=SUM, stack=SYNCHRONIZE),
        rank(MAX, current=SUM, stack=SYNCHRONIZE),
        None,
        [
            f"rank {number} hung {IN_SUM}, killed after 30 s, at {SYNCHRONIZE[0]}:7 in synchronize"
            for number in (0, 1)
        ],
    ),
    "a rank that hangs in init is known by its launcher": (
        rank(current=INIT, initialised=False, stack=("/x/horovod/common/basics.py", "init")),
        rank(current=IMPORT, initialised=False, stack=("/x/torch/__init__.py", "<module>")),
        None,
        [
            "rank 1 hung in import of horovod.torch, killed after 30 s,"
            " at /x/torch/__init__.py:7 in <module>",
            PROVENANCE,
            "rank 0 was waiting in init",
        ],
    ),
    "a rank in init is behind one in an operation": (
        rank(INIT, MAX, current=SUM),
        rank(current=INIT, initialised=False),
        None,
        ["rank 1 hung in init, killed after 30 s", PROVENANCE, f"rank 0 was waiting {IN_SUM}"],
    ),
    "an exception comes before its consequence": (
        rank(MAX, current=SUM, error=SHUT_DOWN, exit={"status": 1}),
        rank(MAX, current=SUM, error={"kind": "ValueError", "detail": "x"}, exit={"status": 1}),
        1,
        [
            f"rank 1 raised ValueError {IN_SUM}: x",
            f"rank 0 was waiting {IN_SUM} and failed with HorovodInternalError",
        ],
    ),
    "an exception of Horovod on all ranks is the cause": (
        rank(current=SUM, error=SHUT_DOWN, exit={"status": 1}),
        rank(current=SUM, error=SHUT_DOWN, exit={"status": 1}),
        1,
        [
            f"rank {number} raised HorovodInternalError {IN_SUM}: Horovod has been shut down."
            for number in (0, 1)
        ],
    ),
    "a wrong result is no death": (
        rank(SUM, MAX, done=True, exit={"status": 0}),
        rank({**SUM, "ok": False, "detail": "1.0"}, MAX, done=True, exit={"status": 1}),
        1,
        ["rank 1: wrong result in allreduce sum float32 x 1000: 1.0"],
    ),
    "unfinished ranks without a culprit were terminated": (
        rank(current=SUM, exit=TOLD),
        rank(current=SUM, exit=TOLD),
        -11,
        [f"rank {number} was terminated {IN_SUM}" for number in (0, 1)],
    ),
    "the launcher fails alone": (
        rank(SUM, done=True, exit={"status": 0}),
        rank(SUM, done=True, exit={"status": 0}),
        3,
        ["mpirun exited with status 3 although no rank failed"],
    ),
    "the launcher does not end": (
        rank(SUM, done=True, exit={"status": 0}),
        rank(SUM, done=True, exit={"status": 0}),
        None,
        ["mpirun did not end although every rank did; killed after 30 s"],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_failures_begin_with_the_culprit(left: Records, case: tuple) -> None:
    *ranks, status, failures = case
    for number, (ended, more) in enumerate(ranks):
        left.rank(number, *ended, **more)
    assert left.failures(status) == failures


@pytest.mark.parametrize(
    "other",
    [
        {"exit": {"signal": 15}},
        {"exit": TOLD},
        {},  # killed with its parent
        {"error": SHUT_DOWN},
        {"error": {**SHUT_DOWN, "kind": "UnknownError"}},  # TensorFlow's
    ],
)
def test_dead_rank_comes_before_the_waiting_one(left: Records, other: dict) -> None:
    left.rank(0, MAX, current=SUM, **other)
    left.rank(1, MAX, current=SUM, exit={"signal": 9})
    culprit, waiting = left.failures()
    assert culprit == f"rank 1 died (signal 9) {IN_SUM}"
    error = f" and failed with {other['error']['kind']}" if "error" in other else ""
    assert waiting == f"rank 0 was waiting {IN_SUM}{error}"


@pytest.mark.parametrize(
    "stack",
    [
        SYNCHRONIZE,
        ("<string>", "horovod_allreduce"),
        ("/x/site-packages/tensorflow/python/eager/execute.py", "quick_execute"),
        ("/x/site-packages/mxnet/ndarray/ndarray.py", "asnumpy"),
        (str(PROGRAM.with_name("program_mpi4py.py")), "by_mpi"),
    ],
)
def test_a_rank_that_waits_in_its_framework_or_mpi_did_not_hang(left: Records, stack) -> None:
    left.rank(0, current=SUM, stack=stack)
    left.rank(1, current=SUM, stack=LOOP)
    assert left.failures(status=None) == [
        f"rank 1 hung {IN_SUM}, killed after 30 s, at /x/busy.py:7 in loop",
        f"rank 0 was waiting {IN_SUM}",
    ]


@pytest.mark.parametrize("prefix", ["", "[0]<stderr>:", "[1,0]<stderr>:", "[0] "])
def test_stall_inspector_decides_if_stacks_do_not(left: Records, prefix: str) -> None:
    for number in (0, 1):
        left.rank(number, MAX, current=SUM, stack=SYNCHRONIZE)
    warning = (
        f"{prefix}Missing ranks:\n{prefix}{{}}: [allreduce sum]\n{prefix}done\n0: [other output]\n"
    )
    log = warning.format(0) + warning.format(1)  # the last one counts
    assert left.failures(status=None, log=log)[0].startswith("rank 1 hung in allreduce sum")


def test_process_without_any_rank_is_named_by_host_and_pid(left: Records) -> None:
    left.rank(None, current=INIT, initialised=False, exit={"status": 1})
    assert left.failures() == [
        "process 100 on a (rank not known yet) ended with exit status 1 in init",
        PROVENANCE,
        "only 1 of 2 processes left a record",
    ]


@pytest.mark.parametrize("launcher, named", [(0, PROVENANCE), (2, "/usr/bin/horovodrun")])
def test_ranks_alone_in_their_worlds(left: Records, launcher: int, named: str) -> None:
    left.rank(0, size=1)
    left.rank(0, size=1, pid=101)
    (failure,) = left.failures(launcher=launcher)
    assert failure.startswith("expected one world of 2 ranks, got separate worlds of size 1: ")
    assert failure.endswith(named)


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


def test_line_that_a_rank_died_in_is_ignored(left: Records) -> None:
    left.rank(0, current=SUM)
    path = left.rank(1, current=SUM, exit={"signal": 9})
    *events, ending = path.read_text().splitlines()
    path.write_text("\n".join([*events, '{"event": "end", "operat', ending]) + "\n")
    assert left.failures()[0] == f"rank 1 died (signal 9) {IN_SUM}"
