"""The checks of what is loaded: MPI, NCCL, and what hides them."""

from __future__ import annotations

import os
import re
from typing import List, Optional

from hvd.doctor.model import Facts, Finding, Launcher, State

#: File names of the MPI libraries that Horovod can be linked with.
MPI_LIBRARIES = ("libmpi.so", "libmpi_ibm.so", "libmpich", "libmpi_cray", "libmpi_gnu")
#: Libraries of which another copy is known to break something.
_TELLING = re.compile(
    r"lib(crypto|ssl|stdc\+\+|gcc_s|mpi\w*|nccl|cudart|fabric|ucp|python\S*)\.so"
)


def mpi_linked(facts: Facts) -> Finding:
    """Whether the environment's ``mpirun`` is of the MPI that Horovod is linked with."""
    check = "MPI linked"
    if "mpi" not in facts.built.expectation.controllers:
        return Finding(check, State.ok, "built without MPI")
    libraries = facts.library(*MPI_LIBRARIES)
    if not libraries:
        found = "Horovod has loaded no MPI library"
        return Finding(check, State.fail, found, f"./hvd build {facts.name} --fresh")
    if len({os.path.realpath(path) for path in libraries}) > 1:
        found = f"two MPI libraries in one process: {', '.join(libraries)}"
        return Finding(check, State.fail, found, "build all of it against one MPI")
    if facts.launcher is None:
        found = f"{_library(facts)}; the environment has no mpirun"
        return Finding(check, State.warn, found, "start ranks with the site's launcher")
    problem = _mismatch(facts, facts.launcher)
    if problem:
        return Finding(check, State.fail, problem, f"./hvd build {facts.name} --fresh")
    return Finding(check, State.ok, f"{_library(facts)}, with {facts.launcher.path}")


def mpi_in_path(facts: Facts) -> Finding:
    """Whether the ``mpirun`` that the calling shell has is of that MPI."""
    check = "MPI in PATH"
    if "mpi" not in facts.built.expectation.controllers:
        return Finding(check, State.ok, "built without MPI")
    launcher = facts.shell_launcher
    if not facts.library(*MPI_LIBRARIES):
        return Finding(check, State.unknown, "no MPI library to compare it with", "see MPI linked")
    if launcher is None:
        if facts.active:
            return Finding(check, State.warn, "this shell has no mpirun", facts.activate)
        return Finding(check, State.ok, "this shell has no mpirun, and is not activated")
    problem = _mismatch(facts, launcher)
    if not problem:
        return Finding(check, State.ok, launcher.path)
    state = State.fail if facts.active else State.warn
    remedy = "take it out of PATH, or unload its module" if facts.active else facts.activate
    return Finding(check, state, problem, remedy)


def _library(facts: Facts) -> str:
    path = facts.library(*MPI_LIBRARIES)[0]
    return f"{facts.mpi}: {path}" if facts.mpi else path


def _mismatch(facts: Facts, launcher: Launcher) -> str:
    """How ``launcher`` differs from the library; empty where it does not."""
    version: Optional[object] = launcher.version
    if facts.mpi and version:
        if facts.mpi == version:
            return ""
        return f"{launcher.path} is {version}, and Horovod is linked with {_library(facts)}"
    # not every MPI says what it is: then by where it is
    prefix = os.path.dirname(os.path.dirname(launcher.real))
    library = os.path.realpath(facts.library(*MPI_LIBRARIES)[0])
    if library.startswith(f"{prefix}/"):
        return ""
    return f"{launcher.path} is of another MPI than {_library(facts)}"


def mpi_compiler(facts: Facts) -> Finding:
    """Whether the compiler that MPI's wrapper calls is there."""
    check = "MPI compiler"
    if "mpi" not in facts.built.expectation.controllers:
        return Finding(check, State.ok, "built without MPI")
    if facts.compiler is None:
        return Finding(check, State.unknown, "no mpicxx in the environment says what it calls")
    program, there = facts.compiler
    if there:
        return Finding(check, State.ok, f"mpicxx calls {program}")
    found = f"mpicxx calls {program}, which is not on PATH"
    remedy = "load its module, or choose another: OMPI_CXX, MPICH_CXX or I_MPI_CXX=g++"
    return Finding(check, State.warn, found, remedy)


def nccl(facts: Facts) -> Finding:
    """Whether NCCL is linked static or shared, and which file it is."""
    if "nccl" not in facts.built.expectation.operations:
        return Finding("NCCL", State.ok, "built without NCCL")
    if facts.built.gpu == "rocm":
        return _nccl_shared(facts, "librccl.so")
    users = [each for each in facts.extensions if _uses_nccl(each.undefined)]
    named = [each for each in facts.extensions if _named(each.needed)]
    if not facts.extensions:
        return Finding("NCCL", State.unknown, "none of Horovod's libraries could be read")
    if not users and not named:
        found = "linked static: neither the site's NCCL nor its network plugin's fits in"
        state = State.warn if facts.built.nccl_link == "static" else State.fail
        return Finding("NCCL", state, found, "build it with nccl_link=shared")
    return _nccl_shared(facts, "libnccl.so")


def _uses_nccl(symbols: frozenset) -> bool:
    return any(symbol.startswith("nccl") for symbol in symbols)


def _named(needed: tuple) -> bool:
    return any(name.startswith("libnccl.so") for name in needed)


def _nccl_shared(facts: Facts, name: str) -> Finding:
    files: List[str] = sorted({os.path.realpath(path) for path in facts.library(name)})
    if not files:
        return Finding("NCCL", State.fail, f"{name} is not loaded", "load the module that has it")
    if len(files) > 1:
        found = f"two in one process: {', '.join(files)}"
        return Finding("NCCL", State.fail, found, "build Horovod with the framework's own NCCL")
    return Finding("NCCL", State.ok, f"shared: {files[0]}")


def shadowing(facts: Facts) -> Finding:
    """Whether the shell's LD_LIBRARY_PATH puts other libraries in the way."""
    check = "LD_LIBRARY_PATH"
    value = facts.shell.get("LD_LIBRARY_PATH", "")
    if not value.strip(":"):
        return Finding(check, State.ok, "not set in this shell")
    telling = {name for name in facts.shadowed if _TELLING.match(name)}
    shown = sorted(telling or facts.shadowed)
    if not shown:
        return Finding(check, State.ok, "hides none of the libraries that are needed")
    texts = [f"{facts.shadowed[name][1]} hides {facts.shadowed[name][0]}" for name in shown[:2]]
    more = f", and {len(facts.shadowed) - 2} more" if len(facts.shadowed) > 2 else ""
    directories = sorted({os.path.dirname(facts.shadowed[name][1]) for name in facts.shadowed})
    remedy = f"take out of LD_LIBRARY_PATH: {':'.join(directories)}"
    state = State.fail if telling else State.warn
    return Finding(check, state, "; ".join(texts) + more, remedy)
