"""What every rank of a smoke test runs, under the Python of the framework.

    mpirun -np 2 python program.py --framework torch --controller mpi --out DIR --ranks 2

Needs the standard library, NumPy, Horovod, its framework and, with ``--mpi4py``, mpi4py.  The
exit status is 0 if every result was right.  `program_record` describes what is in DIR
afterwards; the tool reads it, and what it says holds if a rank died or hung as well.
"""

from __future__ import annotations

import argparse
import importlib
import pathlib
import sys
import traceback
from typing import Any

from program_record import Recorder, mpi_libraries, supervise

#: The modules that adapt a framework to the checks.
FRAMEWORKS = {"torch": "program_torch"}


def main() -> int:
    arguments = parse()
    supervise(arguments.out)
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
    parser.add_argument("--ranks", type=int, required=True, help="how many there have to be")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="existing directory")
    parser.add_argument("--mpi4py", action="store_true", help="check mpi4py as well")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller sizes")
    arguments = parser.parse_args()
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
    recorder.check("init", lambda: hvd.init(process_sets="dynamic"))
    recorder.become_rank(
        hvd.rank(),
        size=hvd.size(),
        local_rank=hvd.local_rank(),
        mpi_enabled=hvd.mpi_enabled(),
        gloo_enabled=hvd.gloo_enabled(),
        mpi_libraries=mpi_libraries(),
    )
    if hvd.size() != arguments.ranks:
        return 1  # the tool sees it from the init events
    check(recorder, framework, arguments)
    recorder.emit("done")
    # A launcher kills the other ranks when one has left with a failure: not before they are done.
    hvd.barrier()
    hvd.shutdown()
    return 1 if recorder.failed else 0


def check(recorder: Recorder, framework: Any, arguments: argparse.Namespace) -> None:
    # After Horovod's import, so that Horovod and its framework choose the libraries.
    import program_bandwidth
    import program_checks
    import program_mpi4py

    hvd = framework.horovod
    session = program_checks.Session(framework, recorder, hvd.rank(), hvd.size(), arguments.quick)
    recorder.check(
        "controller",
        lambda: "".join(name for name in ("mpi", "gloo") if getattr(hvd, f"{name}_enabled")()),
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


if __name__ == "__main__":
    sys.exit(main())
