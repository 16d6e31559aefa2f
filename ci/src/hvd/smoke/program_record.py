"""What a rank leaves behind: which operation it is in, what came of it, and how it ended.

Files of one process in the output directory, each complete up to the moment of a crash:

``launch-<host>-<pid>.jsonl``
    Steps taken before the rank is known (importing Horovod, initialising it); removed once
    the process is a rank.
``rank-<rank>.jsonl``
    One JSON object per line: ``init``, then ``start`` and ``end`` of every operation, then
    ``done``.  Two processes that both believe to be rank 0 get two files.
``stack-<host>-<pid>.txt``
    Where the process was when it was told to terminate or when it crashed.
``exit-<host>-<pid>.json``
    How the process ended, written by its parent (see `supervise`).
"""

import contextlib
import ctypes
import faulthandler
import json
import os
import pathlib
import signal
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Optional, TextIO

#: Where launchers tell a process its rank: Open MPI, PMIx, PMI (MPICH, Intel MPI, Cray),
#: Slurm, and horovodrun with Gloo.
RANK_VARIABLES = (
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "HOROVOD_RANK",
)

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def process_name() -> str:
    """``<host>-<pid>``, which names this process in file names."""
    return f"{socket.gethostname()}-{os.getpid()}"


def launcher_rank() -> Optional[int]:
    """The rank that the launcher gave this process; None where it gave none."""
    for variable in RANK_VARIABLES:
        value = os.environ.get(variable, "")
        if value.isdigit():
            return int(value)
    return None


def supervise(out: pathlib.Path) -> None:
    """Fork: the child returns and becomes the rank, the parent records how it ended.

    Launchers disagree on what they say of a rank that died: MPICH's Hydra kills the others at
    once and names one of those, Open MPI names only the first.  A parent of our own knows.
    It ends the way that its child did, so the launcher sees what it would see without it; on
    SIGTERM it has the child write its stack and kills it.  A process killed together with its
    parent leaves no ``exit`` file: its launcher did it.
    """
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until it is handled
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if sys.platform.startswith("linux"):
            # A launcher may kill the parent only.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
        return
    told: List[int] = []

    def end(number: int, _: Any) -> None:
        if not told:
            told.append(number)
            with contextlib.suppress(ProcessLookupError):  # it ended at the same moment
                os.kill(child, signal.SIGTERM)  # which makes it write its stack, no more
                time.sleep(0.3)
                os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _, wait_status = os.waitpid(child, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    killed_by = os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else None
    status = None if killed_by else os.WEXITSTATUS(wait_status)
    ending = {"signal": killed_by, "status": status, "told_to_end": bool(told)}
    partial = out / f"exit-{socket.gethostname()}-{child}.tmp"
    partial.write_text(json.dumps(ending))
    partial.replace(partial.with_suffix(".json"))
    imitated = signal.SIGTERM if told else killed_by
    if imitated:
        if imitated != signal.SIGKILL:
            signal.signal(imitated, signal.SIG_DFL)
        os.kill(os.getpid(), imitated)
    os._exit(status or 0)


class Recorder:
    """Writes what this process does, one flushed line per event.

    Args:
        out: existing directory for the files.
    """

    def __init__(self, out: pathlib.Path) -> None:
        self.failed = 0
        self._out = out
        self._current: Dict[str, Any] = {}
        self._path = out / f"launch-{process_name()}.jsonl"
        self._file: TextIO = open(self._path, "x")
        self._stack = open(out / f"stack-{process_name()}.txt", "x")
        # Written by a C signal handler, so also while the interpreter is blocked in MPI.  It
        # must not end the process: a second SIGTERM, and there may be one from the launcher
        # and one from the tool, would do so before the first one's stack is written.
        faulthandler.register(signal.SIGTERM, file=self._stack, all_threads=False)
        self.emit(
            "launch", pid=os.getpid(), host=socket.gethostname(), launcher_rank=launcher_rank()
        )

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event."""
        self._file.write(json.dumps({"event": event, **fields}) + "\n")
        self._file.flush()

    def become_rank(self, rank: int, **fields: Any) -> None:
        """Go on in the file of ``rank``, which begins with an ``init`` event."""
        launch = self._path
        self._file.close()
        try:
            self._path = self._out / f"rank-{rank}.jsonl"
            self._file = open(self._path, "x")
        except FileExistsError:  # another process is this rank as well
            self._path = self._out / f"rank-{rank}.{process_name()}.jsonl"
            self._file = open(self._path, "x")
        self.emit("init", rank=rank, pid=os.getpid(), host=socket.gethostname(), **fields)
        launch.unlink()
        # Only now: MPI libraries warn when they find a handler for these signals at start.
        faulthandler.enable(file=self._stack, all_threads=False)

    def check(
        self,
        operation: str,
        call: Callable[[], Any],
        verify: Optional[Callable[[Any], str]] = None,
        dtype: Optional[str] = None,
        elements: Optional[int] = None,
    ) -> Any:
        """Run ``call`` as ``operation`` and return its result.

        Args:
            operation: name; unique on a rank together with ``dtype`` and ``elements``.
            call: the operation; its wall time is recorded.
            verify: gets the result and says what is wrong with it, "" where nothing is.
            dtype: element type, where the operation has one.
            elements: number of elements that this rank contributes.

        Raises:
            Exception: whatever ``call`` raises; the operation then has no ``end``.
        """
        self._current = {"operation": operation, "dtype": dtype, "elements": elements}
        self.emit("start", **self._current)
        begin = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - begin
        detail = verify(result) if verify else ""
        self.failed += bool(detail)
        self.emit("end", **self._current, seconds=seconds, ok=not detail, detail=detail)
        self._current = {}
        return result

    def error(self, error: BaseException) -> None:
        """Record that ``error`` ended the work of this rank."""
        self.emit("error", **self._current, kind=type(error).__name__, detail=str(error))


def mpi_libraries() -> List[str]:
    """Paths of the MPI libraries that this process has loaded (Linux; elsewhere none)."""
    try:
        maps = pathlib.Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "/" in line}
    names = ("libmpi.so", "libmpi_ibm.so", "libmpich", "libmpi_cray", "libmpi_gnu")
    return sorted(path for path in paths if os.path.basename(path).startswith(names))
