"""The record of one process of a smoke test: its operations, its stack, and how it ended.

Each process has one file, ``process-<host>-<pid>.txt``, complete up to the moment of a crash.
A line that begins with ``{`` is an event; the others are the stack, which faulthandler writes
when the process is told to terminate or crashes.  An event is a JSON object whose key ``event``
says what the other keys are:

``start``, ``end``
    An operation, as `hvd.smoke.records.Operation` describes it.
``bandwidth``, ``left_out``
    A row of the table of that name.
``launch``, ``loaded``, ``init``, ``error``, ``done``, ``exit``
    Attributes of the process, as `hvd.smoke.records.Rank` describes them.
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
from typing import Any, Callable, Dict, List, Optional

#: Where launchers tell a process its rank: Open MPI, PMIx, PMI (MPICH, Intel MPI, Cray),
#: Slurm, and horovodrun with Gloo.
RANK_VARIABLES = "OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK SLURM_PROCID HOROVOD_RANK".split()

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def record_of(out: pathlib.Path, pid: int) -> pathlib.Path:
    """Return the path of the record of a process on this host."""
    return out / f"process-{socket.gethostname()}-{pid}.txt"


def _process(pid: int) -> Dict[str, Any]:
    ranks = (os.environ.get(variable, "") for variable in RANK_VARIABLES)
    launcher_rank = next((int(rank) for rank in ranks if rank.isdigit()), None)
    return {"host": socket.gethostname(), "pid": pid, "launcher_rank": launcher_rank}


def supervise(out: pathlib.Path) -> None:
    """Fork: the child returns and becomes the rank, the parent records how the child ended.

    Launchers disagree on what they say of a rank that died: MPICH's Hydra kills the others at
    once and names one of those, Open MPI names only the first.  The parent ends as its child did,
    so the launcher sees no difference; on SIGTERM it has the child write its stack and kills it.
    If the launcher kills both, there is no ``exit`` event.
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
    with record_of(out, child).open("a") as file:
        # The child may have died in the middle of a line.
        file.write("\n" + json.dumps({"event": "exit", **_process(child), **ending}) + "\n")
    imitated = signal.SIGTERM if told else killed_by
    if imitated:
        if imitated != signal.SIGKILL:
            signal.signal(imitated, signal.SIG_DFL)
        os.kill(os.getpid(), imitated)
    os._exit(status or 0)


class Recorder:
    """Writes the record of this process into the existing directory ``out``.

    ``failed`` is the number of wrong results.
    """

    def __init__(self, out: pathlib.Path) -> None:
        self.failed = 0
        self._file = record_of(out, os.getpid()).open("x")
        # Written by a C signal handler, so also while the interpreter is blocked in MPI.  It
        # must not end the process: a second SIGTERM, and there may be one from the launcher
        # and one from the tool, would do so before the first one's stack is written.
        faulthandler.register(signal.SIGTERM, file=self._file, all_threads=False)
        self.emit("launch", **_process(os.getpid()))

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event."""
        self._file.write(json.dumps({"event": event, **fields}) + "\n")
        self._file.flush()

    def initialised(self, rank: int, size: int) -> None:
        """Record what ``init`` made of this process, and record crashes from now on."""
        self.emit("init", rank=rank, size=size, mpi_libraries=mpi_libraries())
        # Only now: MPI libraries warn when they find a handler for these signals at start.
        faulthandler.enable(file=self._file, all_threads=False)

    def check(
        self,
        operation: str,
        call: Callable[[], Any],
        verify: Optional[Callable[[Any], str]] = None,
        dtype: Optional[str] = None,
        elements: Optional[int] = None,
    ) -> Any:
        """Run ``call`` as ``operation`` and return its result; record its wall time.

        Args:
            operation: name; unique on a rank together with ``dtype`` and ``elements``.
            verify: returns what is wrong with the result, "" if nothing is.
            elements: number of elements that this rank contributes.

        Raises:
            Exception: whatever ``call`` raises; the operation then has no ``end``.
        """
        current = {"operation": operation, "dtype": dtype, "elements": elements}
        self.emit("start", **current)
        begin = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - begin
        detail = verify(result) if verify else ""
        self.failed += bool(detail)
        self.emit("end", **current, seconds=seconds, ok=not detail, detail=detail)
        return result

    def error(self, error: BaseException) -> None:
        """Record that ``error`` ended the work of this rank."""
        self.emit("error", error={"kind": type(error).__name__, "detail": str(error)})


def mpi_libraries() -> List[str]:
    """Return the paths of the MPI libraries that this process has loaded (on Linux)."""
    try:
        maps = pathlib.Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "/" in line}
    names = ("libmpi.so", "libmpi_ibm.so", "libmpich", "libmpi_cray", "libmpi_gnu")
    return sorted(path for path in paths if os.path.basename(path).startswith(names))
