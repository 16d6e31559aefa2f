"""The interpreters, compilers and programs of this machine that the matrix asks for."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
from typing import Mapping, Optional, Tuple

import archspec.cpu

from hvd.host import accelerators, framework, machine, mpi
from hvd.host.mpi import Mpi
from hvd.matrix.definition import SYSTEM, Matrix

_CXX = {"gcc": "g++", "clang": "clang++"}


@dataclasses.dataclass(frozen=True)
class Here:
    """Paths of interpreters (by ``major.minor``), C++ compilers (by the axis' value) and programs.

    What is missing is left out or empty.  ``compiler`` is Spack's name and the version of ``c++``,
    ``no_cuda`` says why CUDA builds of frameworks are not taken, ``rocm`` is the version of HIP,
    and ``family`` is archspec's name of the processor's.
    """

    pythons: Mapping[str, str]
    compilers: Mapping[str, str]
    compiler: Tuple[str, str] = ("", "")
    mpi: Optional[Mpi] = None
    ccache: str = ""
    java: str = ""
    no_cuda: str = ""
    rocm: str = ""
    family: str = ""

    @property
    def compiler_cache(self) -> str:
        """``ccache 4.8``, or empty."""
        if not self.ccache:
            return ""
        command = [self.ccache, "--version"]
        words = subprocess.run(command, capture_output=True, text=True).stdout.split()
        return f"{words[0]} {words[2]}" if words else "ccache"


def look(matrix: Matrix, cuda: bool) -> Here:
    """Look for all that the matrix asks for; with ``cuda``, accept CUDA builds of frameworks."""
    pythons = {version: interpreter(version) for version in matrix.axes["python"]}
    compilers = {name: shutil.which(cxx(name)) for name in matrix.axes["compiler"]}
    no_cuda = "the index may have no build without CUDA, which is gigabytes; see --cuda"
    if cuda:
        no_cuda = "" if shutil.which("nvcc") else "nvcc is not on PATH"
    there = shutil.which("c++")
    return Here(
        pythons={version: path for version, path in pythons.items() if path},
        compilers={name: path for name, path in compilers.items() if path},
        compiler=(machine.compiler_name(), machine.compiler_version()) if there else ("", ""),
        mpi=mpi.find(),
        ccache=shutil.which("ccache") or "",
        java=shutil.which("java") or "",
        no_cuda=no_cuda,
        rocm=accelerators.rocm()["hip"].version if shutil.which("hipcc") else "",
        family=str(archspec.cpu.TARGETS[machine.processor()].family),
    )


def cxx(value: str) -> str:
    """Return the name of the C++ compiler for a value of the axis: ``g++-12`` for ``gcc-12``."""
    kind, _, version = value.partition("-")
    return "c++" if value == SYSTEM else f"{_CXX[kind]}-{version}"


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
    for path in filter(None, found):
        if framework.version(path).startswith(f"{version}."):
            return path
    return ""
