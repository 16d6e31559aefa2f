"""What this machine lacks for a cell."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil

import archspec.cpu

from hvd.core import process
from hvd.host import accelerators, framework, machine, mpi
from hvd.matrix.cells import HERE, SYSTEM, Cell, Matrix

_ASK_TORCH = "import importlib.util; print(importlib.util.find_spec('torch') is not None)"


def lacks(matrix: Matrix, cell: Cell) -> str:
    """Return what this machine lacks for ``cell``, and where it can be had; empty if nothing."""
    missing = _missing(matrix, cell)
    values = (cell.target, cell.operations, cell.compiler, cell.python)
    root = next((matrix.roots[value] for value in values if value in matrix.roots), "")
    if missing and root:
        command = (
            f".venv/bin/python tests/debian_root.py {root} -- ./hvd dev matrix --filter {cell.id}"
        )
        missing += f"; in a Debian root: {command}"
    return missing


def _missing(matrix: Matrix, cell: Cell) -> str:
    chosen, python = matrix.frameworks[cell.framework], interpreter(cell.python)
    targets, rocm = archspec.cpu.TARGETS, cell.operations.partition("rocm-")[2]
    family = targets[machine.processor()].family
    if cell.target != HERE and targets[cell.target].family != family:
        return f"this machine is {family}, not {cell.target}"
    if not python:
        return f"no Python {cell.python} on this machine"
    if cell.mpi == SYSTEM and not mpi.find():
        return "no MPI on PATH"
    if not shutil.which(cxx(cell.compiler)):
        return f"no {cxx(cell.compiler)} on PATH"
    if rocm and not (shutil.which("hipcc") and accelerators.rocm()["hip"].version == rocm):
        return f"no HIP {rocm} on PATH"
    if "spark" in chosen.frameworks and not shutil.which("java"):
        return "no java on PATH"
    if chosen.system and process.output(python, "-I", "-c", _ASK_TORCH) != "True":
        return f"the operating system's Python {cell.python} has no PyTorch"
    return ""


def cxx(compiler: str) -> str:
    """Return the C++ compiler of a value of the axis: ``g++-12`` of ``gcc-12``."""
    kind, _, version = compiler.partition("-")
    return "c++" if compiler == SYSTEM else f"{kind.replace('gcc', 'g')}++-{version}"


@functools.cache
def interpreter(version: str) -> str:
    """Return a Python of ``version`` (major.minor) that runs; empty if there is none.

    Searches PATH and where pyenv and uv install: of pyenv's programs on PATH only the selected
    ones run.
    """
    name, home = f"python{version}", pathlib.Path.home()
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or home / ".pyenv")
    data = pathlib.Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    found = [shutil.which(name, path=part) for part in mpi.search_path().split(os.pathsep)]
    for parent in (pyenv / "versions", data / "uv" / "python"):
        found += map(str, sorted(parent.glob(f"*/bin/{name}"), reverse=True))
    # pyenv's links and a module's alias may lead nowhere
    return next((p for p in found if p and framework.version(p).startswith(f"{version}.")), "")
