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
INIT = {**BARRIER, "operation": "init"}
IMPORT = {**BARRIER, "operation": "import of horovod.torch"}
IN_SUM, AFTER_SUM = "in allreduce sum float32 x 1000", "after allreduce sum float32 x 1000"
MPI = "/opt/mpi/lib/libmpi.so.40"
PROVENANCE = f"the mpirun was /usr/bin/mpirun, and Horovod links {MPI}; they must be of one MPI"
SHUT_DOWN = {"kind": "HorovodInternalError", "detail": "Horovod has been shut down."}
SYNCHRONIZE = ("/site-packages/horovod/torch/mpi_ops.py", "synchronize")
LOOP = ("/x/busy.py", "loop")
TOLD = {"signal": 15, "told_to_end": True}
KILLED_AFTER = "killed after 30 s"


def rank(
    *ended: dict,
    current: Optional[dict] = None,
    initialised: bool = True,
    size: int = 2,
    done: bool = False,
    error: Optional[dict] = None,
    stack: tuple = (),
    fatal: str = "",
    exit: Optional[dict] = None,
    number: Optional[int] = -1,
) -> tuple:
    """A function that returns the record of a rank that ended some operations.

    Args:
        current: the operation that it is in.
        number: of the rank; by default its place among the ranks.
    """

    def lines(place: int, pid: int) -> str:
        mine = place if number == -1 else number
        process = {"host": "a", "pid": pid}
        events = [
            {"event": "launch", **process, "launcher_rank": mine},
            {"event": "loaded", "mpi_libraries": [MPI]},
        ]
        events += [{"event": "init", "rank": mine, "size": size}] * initialised
        for operation in ended:
            events.append({"event": "start", **{key: operation[key] for key in SUM}})
            events.append({"event": "end", "seconds": 0.1, "ok": True, "detail": "", **operation})
        events += [{"event": "start", **(current or {})}] * bool(current)
        events += [{"event": "error", "error": error}] * bool(error)
        events += [{"event": "done", "done": True}] * done
        texts = [json.dumps(event) for event in events]
        texts += [f"Fatal Python error: {fatal}\n"] * bool(fatal)
        if stack:
            texts += [
                "Stack (most recent call first):",
                f'  File "{stack[0]}", line 7 in {stack[1]}',
            ]
            texts.append('  File "main.py", line 1 in main')
        if exit:
            ending = {"signal": None, "status": None, "told_to_end": False, **exit}
            # it may have died in the middle of a line
            texts += [
                '{"event": "end", "operat',
                json.dumps({"event": "exit", **process, **ending}),
            ]
        return "\n".join(texts) + "\n"

    return lines


@pytest.fixture
def failures(tmp_path: pathlib.Path):
    """The findings for some ranks and an exit status of the launcher, None if it was killed."""

    def found(*ranks, status: Optional[int] = 1, log: str = "", launcher: int = 0) -> list:
        for place, lines in enumerate(ranks):
            text = lines(place, 100 + place)
            (tmp_path / f"process-a-{100 + place}.txt").write_text(text)
        path = tmp_path / "log.txt"
        path.write_text(log)
        chosen = LAUNCHERS[launcher]
        mpirun = "/usr/bin/mpirun" if chosen.controller == "mpi" else None
        launch = Launch(chosen, f"/usr/bin/{chosen.program}", mpirun, 2, status, 30.2, path)
        return attribution.failures(launch, records.read(tmp_path))

    return found


ENDED = rank(SUM, done=True, exit={"status": 0})
#: By name: rank 0 and rank 1, the exit status of the launcher, and the failures.
CASES = {
    "nothing is wrong": (ENDED, ENDED, 0, []),
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
            f"rank 1 hung in allreduce max int32 x 3, {KILLED_AFTER}",
            "rank 0 was waiting in barrier",
        ],
    ),
    "all ranks hung if nothing tells them apart": (
        rank(MAX, current=SUM, stack=SYNCHRONIZE),
        rank(MAX, current=SUM, stack=SYNCHRONIZE),
        None,
        [
            f"rank {number} hung {IN_SUM}, {KILLED_AFTER}, at {SYNCHRONIZE[0]}:7 in synchronize"
            for number in (0, 1)
        ],
    ),
    "a rank that hangs in init is known by its launcher": (
        rank(current=INIT, initialised=False, stack=("/x/horovod/common/basics.py", "init")),
        rank(current=IMPORT, initialised=False, stack=("/x/torch/__init__.py", "<module>")),
        None,
        [
            f"rank 1 hung in import of horovod.torch, {KILLED_AFTER},"
            " at /x/torch/__init__.py:7 in <module>",
            PROVENANCE,
            "rank 0 was waiting in init",
        ],
    ),
    "a rank in init is behind one in an operation": (
        rank(INIT, MAX, current=SUM),
        rank(current=INIT, initialised=False),
        None,
        [f"rank 1 hung in init, {KILLED_AFTER}", PROVENANCE, f"rank 0 was waiting {IN_SUM}"],
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
        ENDED,
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
        *(ENDED, ENDED, 3),
        ["mpirun exited with status 3 although no rank failed"],
    ),
    "the launcher does not end": (
        *(ENDED, ENDED, None),
        [f"mpirun did not end although every rank did; {KILLED_AFTER}"],
    ),
    "a process without any rank is named by host and pid": (
        rank(current=INIT, initialised=False, exit={"status": 1}, number=None),
        1,
        [
            "process 100 on a (rank not known yet) ended with exit status 1 in init",
            PROVENANCE,
            "only 1 of 2 processes left a record",
        ],
    ),
    "an absent record is a failure even if the launcher is content": (
        *(rank(SUM, done=True), 0),
        ["rank 1 left no record: it was not started, or ended before it could write"],
    ),
    "a launcher that starts nothing": (
        *(0, ["mpirun exited with status 0 after 30 s, and no rank had left a record"]),
    ),
    "a launcher that hangs": (
        *(None, ["mpirun was killed after 30 s, and no rank had left a record"]),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_failures_begin_with_the_culprit(failures, case: tuple) -> None:
    *ranks, status, expected = case
    assert failures(*ranks, status=status) == expected


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
def test_dead_rank_comes_before_the_waiting_one(failures, other: dict) -> None:
    dead = rank(MAX, current=SUM, exit={"signal": 9})
    error = f" and failed with {other['error']['kind']}" if "error" in other else ""
    assert failures(rank(MAX, current=SUM, **other), dead) == [
        f"rank 1 died (signal 9) {IN_SUM}",
        f"rank 0 was waiting {IN_SUM}{error}",
    ]


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
def test_a_rank_that_waits_in_its_framework_or_mpi_did_not_hang(failures, stack) -> None:
    waiting, hung = rank(current=SUM, stack=stack), rank(current=SUM, stack=LOOP)
    assert failures(waiting, hung, status=None) == [
        f"rank 1 hung {IN_SUM}, {KILLED_AFTER}, at /x/busy.py:7 in loop",
        f"rank 0 was waiting {IN_SUM}",
    ]


@pytest.mark.parametrize("prefix", ["", "[0]<stderr>:", "[1,0]<stderr>:", "[0] "])
def test_stall_inspector_decides_if_stacks_do_not(failures, prefix: str) -> None:
    warning = (
        f"{prefix}Missing ranks:\n{prefix}{{}}: [allreduce sum]\n{prefix}done\n0: [other output]\n"
    )
    log = warning.format(0) + warning.format(1)  # the last one counts
    same = rank(MAX, current=SUM, stack=SYNCHRONIZE)
    found = failures(same, same, status=None, log=log)
    assert found[0].startswith("rank 1 hung in allreduce sum")


@pytest.mark.parametrize("launcher, named", [(0, PROVENANCE), (2, "/usr/bin/horovodrun")])
def test_ranks_alone_in_their_worlds(failures, launcher: int, named: str) -> None:
    alone = rank(size=1, number=0)
    (failure,) = failures(alone, alone, launcher=launcher)
    assert failure.startswith("expected one world of 2 ranks, got separate worlds of size 1: ")
    assert failure.endswith(named)
