"""Cells and results of a support matrix that nobody tried."""

from __future__ import annotations

from typing import Any, Optional

from hvd.matrix.definition import Cell
from hvd.matrix.here import Here
from hvd.matrix.result import Result

#: A machine with every Python, a second compiler, Java, and no MPI on PATH.
HERE = Here(
    pythons={f"3.{minor}": f"/opt/python3.{minor}/bin/python" for minor in range(6, 14)},
    compilers={"system": "/usr/bin/c++", "gcc-12": "/usr/bin/g++-12"},
    compiler=("gcc", "12.2.0"),
    java="/usr/bin/java",
    no_cuda="see --cuda",
)


def cell(**values: str) -> Cell:
    """A cell of the real matrix; ``values`` are axes otherwise."""
    usual = {
        "horovod": "0.28.1",
        "framework": "pytorch-2.13",
        "python": "3.11",
        "mpi": "openmpi-4.1",
        "controllers": "both",
        "operations": "default",
        "cmake": "cmake-3",
        "compiler": "system",
        "engine": "pip",
    }
    return Cell(**{**usual, **values})


def result(came: str = "passed", of: Optional[Cell] = None, **fields: Any) -> Result:
    """What came of a cell."""
    usual = {
        "spec": "py-horovod@0.28.1 +mpi+gloo ~rocm~cuda frameworks:=pytorch "
        "^python@3.11 ^py-torch@2.13.0 ^openmpi@4.1.8 ^cmake@3.31.10 %gcc@12.2.0",
        "date": "2026-01-31",
        "log": "0" * 64,
        "seconds": {"build": 100.0, "smoke": 20.0},
    }
    return Result(of or cell(), came, **{**usual, **fields})
