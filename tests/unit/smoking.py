"""Shared by the tests of the smoke test: a Horovod that was not built."""

from __future__ import annotations

from hvd.model.check_build import Expectation

MPI_ONLY = Expectation(
    "0.28.1", frozenset({"pytorch"}), frozenset({"mpi"}), frozenset({"nccl", "mpi"})
)

CHECK_BUILD = """Horovod v0.28.1:
Available Frameworks:
    [X] PyTorch
Available Controllers:
    [X] MPI
Available Tensor Operations:
    [X] NCCL
    [X] MPI
"""

#: A launcher whose ranks do what ``program.py`` would, without Horovod.
LAUNCHER = """
    import json, os, pathlib, sys
    if "--check-build" in sys.argv:
        print(os.environ["CHECK_BUILD"])
        sys.exit(0)
    out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
    for rank in (0, 1):
        operation = {"operation": "allgather", "dtype": "int32", "elements": 10 * rank}
        events = [{"event": "launch", "host": "a", "pid": rank},
                  {"event": "init", "rank": rank, "size": 2,
                   "mpi_libraries": ["/opt/mpi/lib/libmpi.so"]},
                  {"event": "left_out", "operation": "x", "dtype": "bool", "reason": "y"},
                  {"event": "start", **operation},
                  {"event": "end", **operation, "seconds": 1 + rank, "ok": True, "detail": ""},
                  {"event": "bandwidth", "method": "horovod", "bytes": 4_000_000,
                   "seconds": 1 + rank},
                  {"event": "done", "done": True}]
        lines = "".join(json.dumps(event) + "\\n" for event in events)
        (out / f"process-a-{rank}.txt").write_text(lines)
    print(json.dumps({"words": sys.argv[1:], "environment": dict(os.environ)}))
"""
