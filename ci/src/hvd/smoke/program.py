"""What every rank of a smoke test runs, under the Python of the framework.

    mpirun -np 2 python program.py --framework torch --controller mpi --out DIR --ranks 2

Needs the standard library, NumPy, Horovod, its framework and, with ``--mpi4py``, mpi4py.  The
exit status is 0 if every result was right.  `program_record` describes what is in DIR
afterwards; the tool reads it, and what it says holds if a rank died or hung as well.
``program_spark`` and ``program_ray`` take the same arguments and start the ranks themselves.
"""

import argparse
import importlib
import pathlib
import sys
import traceback
from typing import Any

from program_record import Recorder, mpi_libraries, supervise

#: The modules that adapt a framework to the checks.
FRAMEWORKS = {
    "torch": "program_torch",
    "tensorflow": "program_tensorflow",
    "mxnet": "program_mxnet",
}


def main() -> int:
    arguments = parse()
    supervise(arguments.out)
    return run(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Be one rank, in this process; its exit status."""
    recorder = Recorder(arguments.out)
    try:
        return work(recorder, arguments)
    except Exception as error:
        recorder.error(error)
        traceback.print_exc()
        return 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One rank of a Horovod smoke test.")
    parser.add_argument("--framework", choices=sorted(FRAMEWORKS), required=True)
    parser.add_argument("--controller", choices=("mpi", "gloo"), required=True)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="of the tensors")
    parser.add_argument("--ranks", type=int, required=True, help="how many there have to be")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="existing directory")
    parser.add_argument("--mpi4py", action="store_true", help="check mpi4py as well")
    parser.add_argument("--keras", action="store_true", help="check Keras as well")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller sizes")
    arguments = parser.parse_args()
    if arguments.keras and arguments.framework != "tensorflow":
        parser.error("--keras needs --framework tensorflow: Horovod's Keras runs on it")
    if arguments.mpi4py and arguments.controller != "mpi":
        parser.error("--mpi4py needs --controller mpi: Gloo does not initialise MPI")
    return arguments


def work(recorder: Recorder, arguments: argparse.Namespace) -> int:
    """Import, initialise, check and measure; the exit status of this rank."""
    framework = recorder.check(
        f"import of horovod.{arguments.framework}",
        lambda: importlib.import_module(FRAMEWORKS[arguments.framework]),
    )
    hvd = framework.horovod
    recorder.emit("loaded", mpi_libraries=mpi_libraries())
    dynamic = {"process_sets": "dynamic"} if hasattr(hvd, "add_process_set") else {}
    recorder.check("init", lambda: hvd.init(**dynamic))
    recorder.check(
        f"tensors on the {arguments.device.upper()}",
        lambda: framework.place(arguments.device, hvd.local_rank()),
    )
    recorder.become_rank(
        hvd.rank(),
        size=hvd.size(),
        local_rank=hvd.local_rank(),
        mpi_libraries=mpi_libraries(),
    )
    if hvd.size() != arguments.ranks:
        return 1  # the tool sees it from the init events
    session = check(recorder, framework, arguments)
    recorder.emit("done")
    # A launcher kills the other ranks when one has left with a failure: not before they are done.
    session.meet()
    hvd.shutdown()
    return 1 if recorder.failed else 0


def check(recorder: Recorder, framework: Any, arguments: argparse.Namespace) -> Any:
    """Check and measure; the session in which it was done."""
    # After Horovod's import, so that Horovod and its framework choose the libraries.
    import program_bandwidth
    import program_checks
    import program_mpi4py
    from program_session import Session, controller_enabled

    hvd = framework.horovod
    session = Session(
        framework, recorder, hvd.rank(), hvd.size(), arguments.quick, arguments.keras
    )
    recorder.check(
        "controller",
        lambda: "".join(name for name in ("mpi", "gloo") if controller_enabled(hvd, name)),
        lambda got: (
            "" if got == arguments.controller else f"expected {arguments.controller}, got {got}"
        ),
    )
    program_checks.run(session)
    mpi = None
    if arguments.mpi4py:
        mpi = recorder.check("import of mpi4py", program_mpi4py.load)
        program_mpi4py.run(session, mpi)
    program_bandwidth.run(session, mpi)
    program_checks.every_reducescatter(session)
    return session


if __name__ == "__main__":
    sys.exit(main())
