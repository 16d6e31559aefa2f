"""The program that every rank of a smoke test runs, under the Python of the framework.

    mpirun -np 2 python program.py --framework torch --controller mpi --out DIR --ranks 2

Needs the standard library of Python 3.6, NumPy, Horovod, its framework and, with ``--mpi4py``,
mpi4py.  The exit status is 0 if every result was right.

Each process records what it does in ``DIR/process-HOST-PID.txt``, which is complete up to the
moment of a crash.  A line that begins with ``{`` is an event, whose other keys are those of
`hvd.smoke.records.Operation` (``start``, ``end``), a row of a table (``bandwidth``, ``left_out``)
or attributes of `hvd.smoke.records.Rank`.  The other lines are the stacks that faulthandler
writes when the process crashes, is told to terminate, or has reached ``--limit``.
"""

import argparse
import ctypes
import faulthandler
import importlib
import json
import os
import pathlib
import signal
import socket
import sys
import time
import traceback
from typing import Any, Callable, List, Optional

#: Where launchers tell a process its rank: Open MPI, PMIx, PMI (MPICH, Intel MPI, Cray),
#: Slurm, and horovodrun with Gloo.
RANK_VARIABLES = "OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK SLURM_PROCID HOROVOD_RANK".split()
#: Beginnings of the file names of MPI libraries.
MPI_LIBRARIES = ("libmpi.so", "libmpi_ibm.so", "libmpich", "libmpi_cray", "libmpi_gnu")
#: Seconds from the stack that says where a rank hangs to its end; the other ranks write theirs.
GRACE = 10

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Recorder:
    """Writes the record of a process; ``failed`` is the number of wrong results."""

    def __init__(self, out: pathlib.Path, pid: Optional[int] = None) -> None:
        self.failed = 0
        host, pid = socket.gethostname(), pid or os.getpid()
        ranks = (os.environ.get(variable, "") for variable in RANK_VARIABLES)
        rank = next((int(rank) for rank in ranks if rank.isdigit()), None)
        self.process = {"host": host, "pid": pid, "launcher_rank": rank}
        self.file = (out / f"process-{host}-{pid}.txt").open("a")

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event, on a line of its own: the process may have died within one."""
        self.file.write("\n" + json.dumps({"event": event, **fields}) + "\n")
        self.file.flush()

    def check(
        self,
        operation: str,
        call: Callable[[], Any],
        verify: Optional[Callable[[Any], str]] = None,
        dtype: Optional[str] = None,
        elements: Optional[int] = None,
    ) -> Any:
        """Run ``call`` as ``operation``, record its wall time, and return its result.

        ``verify`` returns what is wrong with the result, "" if nothing is.
        """
        current = {"operation": operation, "dtype": dtype, "elements": elements}
        self.emit("start", **current)
        begin = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - begin
        detail = verify(result) if verify else ""
        self.failed += bool(detail)
        self.emit("end", seconds=seconds, ok=not detail, detail=detail, **current)
        return result


def supervise(out: pathlib.Path) -> None:
    """Fork: the child returns and becomes the rank, the parent records how the child ended.

    A rank that is killed cannot say so itself, and launchers disagree: MPICH's kills the others
    at once and names one of those.  The parent ends as its child did.
    """
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        if sys.platform.startswith("linux"):
            # a launcher may end the parent only
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        return
    _, ending = os.waitpid(child, 0)
    killed_by = os.WTERMSIG(ending) if os.WIFSIGNALED(ending) else None
    status = None if killed_by else os.WEXITSTATUS(ending)
    recorder = Recorder(out, child)
    recorder.emit("exit", signal=killed_by, status=status, **recorder.process)
    if killed_by:
        if killed_by != signal.SIGKILL:
            signal.signal(killed_by, signal.SIG_DFL)
        os.kill(os.getpid(), killed_by)
    os._exit(status)


def run(arguments: argparse.Namespace) -> int:
    """Run one rank in this process; return the exit status."""
    recorder = Recorder(arguments.out)
    recorder.emit("launch", **recorder.process)
    # These work while the interpreter is blocked in MPI.
    faulthandler.register(signal.SIGTERM, file=recorder.file, all_threads=False, chain=True)
    faulthandler.dump_traceback_later(arguments.limit, file=recorder.file)
    signal.alarm(arguments.limit + GRACE)
    try:
        return work(recorder, arguments)
    except Exception as error:
        recorder.emit("error", error={"kind": type(error).__name__, "detail": str(error)})
        traceback.print_exc()
        return 1
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()


def work(recorder: Recorder, arguments: argparse.Namespace) -> int:
    """Import, initialise and check; return the exit status of this rank."""
    framework = recorder.check(
        f"import of horovod.{arguments.framework}",
        lambda: importlib.import_module(f"program_{arguments.framework}").Framework,
    )
    hvd = framework.hvd
    recorder.emit("loaded", mpi_libraries=mpi_libraries())
    dynamic = {"process_sets": "dynamic"} if hasattr(hvd, "add_process_set") else {}
    recorder.check("init", lambda: hvd.init(**dynamic))
    session = recorder.check(
        f"tensors on the {arguments.device.upper()}", lambda: framework(recorder, arguments)
    )
    # some MPI libraries are loaded by init
    recorder.emit("init", rank=session.rank, size=session.size, mpi_libraries=mpi_libraries())
    # Only now: MPI libraries warn when they find a handler for these signals at start.
    faulthandler.enable(file=recorder.file, all_threads=False)
    if session.size != arguments.ranks:
        return 1  # the tool sees it from the init events
    controllers = " ".join(name for name in ("mpi", "gloo") if session.controlled_by(name))
    session.check("controller", lambda: controllers, arguments.controller)
    # After Horovod's import, so that Horovod and its framework choose the libraries.
    import program_operations

    program_operations.run(session)
    recorder.emit("done", done=True)
    # A launcher kills the other ranks when one has left with a failure: not before they are done.
    session.meet()
    hvd.shutdown()
    return 1 if recorder.failed else 0


def mpi_libraries() -> List[str]:
    """Return the paths of the MPI libraries that this process has loaded (on Linux)."""
    try:
        maps = pathlib.Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "/" in line}
    return sorted(path for path in paths if os.path.basename(path).startswith(MPI_LIBRARIES))


def parse() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description="One rank of a Horovod smoke test.")
    add = parser.add_argument
    add("--framework", choices=("torch", "tensorflow", "mxnet"), required=True)
    add("--controller", choices=("mpi", "gloo"), required=True)
    add("--device", choices=("cpu", "gpu"), default="cpu", help="of the tensors")
    add("--ranks", type=int, required=True, help="how many there have to be")
    add("--out", type=pathlib.Path, required=True, help="existing directory")
    add("--limit", type=int, default=600, help="seconds before it is ended")
    add("--mpi4py", action="store_true", help="check mpi4py as well; with mpi")
    add("--keras", action="store_true", help="check Keras; with tensorflow")
    add("--quick", action="store_true", help="fewer and smaller sizes")
    return parser.parse_args()


if __name__ == "__main__":
    ARGUMENTS = parse()
    supervise(ARGUMENTS.out)
    sys.exit(run(ARGUMENTS))
