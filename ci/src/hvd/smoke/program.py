"""The program that every rank of a smoke test runs, under the Python of the framework.

    mpirun -np 2 python program.py --framework torch --controller mpi --out DIR --ranks 2

Needs the standard library, NumPy, Horovod, its framework and, with ``--mpi4py``, mpi4py.  The
exit status is 0 if every result was right.  `program_record` describes what is in DIR
afterwards.  ``program_cluster`` takes the same arguments and starts the ranks itself.
"""

import argparse
import importlib
import pathlib
import sys
import traceback

from program_record import Recorder, mpi_libraries, supervise


def run(arguments: argparse.Namespace) -> int:
    """Be one rank, in this process; return its exit status."""
    recorder = Recorder(arguments.out)
    try:
        return work(recorder, arguments)
    except Exception as error:
        recorder.error(error)
        traceback.print_exc()
        return 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One rank of a Horovod smoke test.")
    parser.add_argument("--framework", choices=("torch", "tensorflow", "mxnet"), required=True)
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
    recorder.initialised(session.rank, session.size)
    if session.size != arguments.ranks:
        return 1  # the tool sees it from the init events
    session.check(
        "controller",
        lambda: "".join(name for name in ("mpi", "gloo") if session.controlled_by(name)),
        arguments.controller,
    )
    # After Horovod's import, so that Horovod and its framework choose the libraries.
    import program_operations

    program_operations.run(session)
    recorder.emit("done", done=True)
    # A launcher kills the other ranks when one has left with a failure: not before they are done.
    session.meet()
    hvd.shutdown()
    return 1 if recorder.failed else 0


if __name__ == "__main__":
    ARGUMENTS = parse()
    supervise(ARGUMENTS.out)
    sys.exit(run(ARGUMENTS))
