"""What this machine has of what the matrix asks for."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import shutil
import subprocess
from typing import Iterator, Mapping, Optional

from hvd.host import framework, machine
from hvd.host import mpi as mpi_module
from hvd.host.mpi import Mpi
from hvd.matrix.definition import SYSTEM, Matrix

#: The C++ compiler of each kind.
CXX = {"gcc": "g++", "clang": "clang++"}


@dataclasses.dataclass(frozen=True)
class Here:
    """What is there.

    Args:
        pythons: interpreters, by ``major.minor``.
        compilers: C++ compilers, by the axis' value.
        compiler: Spack's name and the version of ``c++`` on PATH; empty where there is none.
        mpi: the MPI on PATH.
        ccache: path of it; empty where there is none.
        java: path of it; empty where there is none.
        cuda: builds for CUDA are asked for, and can be made.
        no_cuda: why not.
    """

    pythons: Mapping[str, str]
    compilers: Mapping[str, str]
    compiler: tuple = ("", "")
    mpi: Optional[Mpi] = None
    ccache: str = ""
    java: str = ""
    cuda: bool = False
    no_cuda: str = ""

    def lacks(self, matrix: Matrix, values: Mapping[str, str]) -> str:
        """Why no cell with ``values`` can be tried here; empty where one can.

        Args:
            matrix: whose axes they are of.
            values: of all axes, or of some.
        """
        python, name = values.get("python"), values.get("framework")
        if python and python not in self.pythons:
            return f"Python {python} is not on this machine"
        if values.get("mpi") == SYSTEM and not self.mpi:
            return "there is no MPI on PATH"
        compiler = values.get("compiler")
        if compiler and compiler not in self.compilers:
            return f"{_program(compiler)} is not on PATH"
        chosen = matrix.frameworks[name] if name else None
        if chosen and chosen.system and python and not _imports_torch(self.pythons[python]):
            return f"{name}: the operating system's Python {python} has no PyTorch"
        if chosen and "spark" in chosen.frameworks and not self.java:
            return f"{name}: java is not on PATH"
        if chosen and python and chosen.cuda is not None and python in chosen.cuda:
            return "" if self.cuda else f"{name} for Python {python}: {self.no_cuda}"
        return ""


def look(matrix: Matrix, cuda: bool) -> Here:
    """Look this machine over.

    Args:
        matrix: what is asked for.
        cuda: take frameworks for CUDA as well.
    """
    pythons = {version: interpreter(version) for version in matrix.axes["python"]}
    compilers = {name: shutil.which(_program(name)) for name in matrix.axes["compiler"]}
    if not cuda:
        reason = "the index may have no build without CUDA, which is gigabytes; see --cuda"
    else:
        reason = "" if shutil.which("nvcc") else "nvcc is not on PATH"
    system = (machine.compiler_name(), machine.compiler_version()) if shutil.which("c++") else None
    return Here(
        pythons={version: path for version, path in pythons.items() if path},
        compilers={name: path for name, path in compilers.items() if path},
        compiler=system or ("", ""),
        mpi=mpi_module.find(),
        ccache=shutil.which("ccache") or "",
        java=shutil.which("java") or "",
        cuda=not reason,
        no_cuda=reason,
    )


@functools.cache
def _imports_torch(python: str) -> bool:
    ask = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    command = [python, "-I", "-c", ask]
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0


@functools.cache
def interpreter(version: str) -> str:
    """A Python of ``version`` (major.minor) that runs; empty where there is none.

    On PATH, and where pyenv and uv put theirs: pyenv's programs on PATH run the chosen ones alone.
    """
    for path in _candidates(f"python{version}"):
        # the links of pyenv and of a module's alias may lead nowhere
        if framework.version(path).startswith(f"{version}."):
            return path
    return ""


def _candidates(name: str) -> Iterator[str]:
    for directory in mpi_module.search_path().split(os.pathsep):
        found = shutil.which(name, path=directory)
        if found:
            yield found
    home = pathlib.Path.home()
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or home / ".pyenv")
    data = pathlib.Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    for parent in (pyenv / "versions", data / "uv" / "python"):
        yield from map(str, sorted(parent.glob(f"*/bin/{name}"), reverse=True))


def ccache_version(path: str) -> str:
    """``ccache 4.8``, or empty where ``path`` is."""
    if not path:
        return ""
    said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    return " ".join(said.split()[::2][:2]) if said else "ccache"


def _program(compiler: str) -> str:
    kind, _, version = compiler.partition("-")
    return "c++" if compiler == SYSTEM else f"{CXX[kind]}-{version}"
