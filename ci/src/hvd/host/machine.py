"""This machine, for the report, and the compiler flags for its processor."""

from __future__ import annotations

import functools
import os
import pathlib
import platform
import re
import sys
from typing import Any, Dict

import archspec.cpu
import psutil

from hvd.core import process
from hvd.core.errors import HvdError

#: Where a root of Debian has its name: https://manpages.debian.org/bookworm/bash/bash.1.html
_ROOT = pathlib.Path("/etc/debian_chroot")


def describe() -> Dict[str, Any]:
    """Operating system, processor, cores, memory in bytes, and the root that this runs in."""
    release = pathlib.Path("/etc/os-release")
    text = release.read_text() if release.is_file() else ""
    system = re.search(r'^PRETTY_NAME="?(.*?)"?$', text, re.MULTILINE)
    found = {
        "os": system[1] if system else platform.platform(),
        "cpu": processor(),
        "cores": cores(),
        "memory": psutil.virtual_memory().total,
    }
    return {**found, "root": _ROOT.read_text().strip()} if _ROOT.is_file() else found


def cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compiler_version() -> str:
    """Version of ``c++`` as ``major.minor.patch``; empty if there is none."""
    return process.output("c++", "-dumpfullversion", "-dumpversion")


def compiler_name() -> str:
    """Spack's name of ``c++``: ``gcc`` or ``llvm``."""
    return "llvm" if "clang" in process.output("c++", "--version") else "gcc"


def processor() -> str:
    """archspec's name of this machine's processor; of an emulated one, that of its family."""
    # /proc/cpuinfo knows nothing of emulation
    return foreign() or str(archspec.cpu.host().name)


@functools.cache
def foreign() -> str:
    """Return the processor family that is emulated for the programs here; empty if none is.

    ``./hvd`` itself runs natively in a root of another processor; see `tests/debian_root.py`.
    """
    said = process.output("uname", "-m")
    return said if said in archspec.cpu.TARGETS and said != platform.machine() else ""


def python() -> str:
    """Return a Python for this machine's processor: that of ``./hvd``, or the emulated one."""
    return "/usr/bin/python3" if foreign() else sys.executable


def architecture_flags(target: str) -> str:
    """Return archspec's compiler flags for a processor, as Spack passes them.

    Args:
        target: archspec's name of it.
    """
    if target not in archspec.cpu.TARGETS:
        raise HvdError(
            f"target={target}: archspec knows no such processor",
            "leave it out, or see the names in: spack arch --known-targets",
        )
    compiler = "clang" if compiler_name() == "llvm" else "gcc"
    return archspec.cpu.TARGETS[target].optimization_flags(compiler, compiler_version())
