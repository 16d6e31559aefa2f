"""MPI beside Horovod in the same process, by way of mpi4py."""

from types import ModuleType

import numpy as np
import program_reference as reference
from program_session import Session


def load() -> ModuleType:
    """Return ``mpi4py.MPI`` over the MPI that Horovod has initialised and will finalise."""
    import mpi4py

    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
    from mpi4py import MPI

    return MPI


def run(session: Session) -> None:
    """Check that mpi4py and Horovod are in one world and agree on a sum."""
    if not session.mpi4py:
        return
    mpi = session.mpi = session.recorder.check("import of mpi4py", load)
    world = mpi.COMM_WORLD
    session.check(
        "mpi4py world",
        lambda: {"rank": world.Get_rank(), "size": world.Get_size()},
        {"rank": session.rank, "size": session.size},
    )
    # Horovod's background thread is in MPI at the same time.
    session.recorder.check(
        "mpi4py thread level",
        mpi.Query_thread,
        lambda level: "" if level == mpi.THREAD_MULTIPLE else "expected MPI_THREAD_MULTIPLE",
    )
    name, elements = "mpi4py Allreduce sum", 1000
    arrays = reference.inputs(name, [(elements,)] * session.size, "float64")
    expected = reference.reduced("sum", arrays)
    tensor = session.tensor(arrays[session.rank])

    def by_mpi() -> np.ndarray:
        result = np.empty(elements)
        world.Allreduce(arrays[session.rank], result, op=mpi.SUM)
        return result

    def verify(result: np.ndarray) -> str:
        wrong = reference.mismatch(result, expected)
        if wrong:
            return wrong
        wrong = session.mismatch(
            session.allreduce(tensor, name, "sum"), expected._replace(values=result)
        )
        return f"Horovod and mpi4py disagree: {wrong}" if wrong else ""

    session.recorder.check(name, by_mpi, verify, "float64", elements)
