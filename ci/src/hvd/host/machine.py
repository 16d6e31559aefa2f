"""What this machine is, for the report, and which compiler flags its processor takes."""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
from typing import Any, Dict

import archspec.cpu
import psutil

from hvd.core.errors import HvdError


def describe() -> Dict[str, Any]:
    """Operating system, processor, cores and memory in bytes."""
    release = pathlib.Path("/etc/os-release")
    system = platform.platform()
    if release.is_file():
        for line in release.read_text().splitlines():
            if line.startswith("PRETTY_NAME="):
                system = line.partition("=")[2].strip('"')
    return {
        "os": system,
        "cpu": processor(),
        "cores": cores(),
        "memory": psutil.virtual_memory().total,
    }


def cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compiler_version() -> str:
    """Version of ``c++`` in the form of ``major.minor.patch``; empty where there is none."""
    try:
        banner = subprocess.run(
            ["c++", "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return banner.stdout.strip()


def compiler_name() -> str:
    """Spack's name of ``c++``: ``gcc`` or ``llvm``."""
    banner = subprocess.run(["c++", "--version"], capture_output=True, text=True)
    return "llvm" if "clang" in banner.stdout else "gcc"


def processor() -> str:
    """archspec's name of this machine's processor."""
    return str(archspec.cpu.host().name)


def architecture_flags(target: str) -> str:
    """What Spack gives the compiler for a processor: archspec's flags.

    Args:
        target: archspec's name of it.

    Raises:
        HvdError: archspec does not know it.
    """
    if target not in archspec.cpu.TARGETS:
        raise HvdError(f"target={target}: archspec knows no such processor", "or leave it out")
    compiler = {"llvm": "clang"}.get(compiler_name(), "gcc")
    return archspec.cpu.TARGETS[target].optimization_flags(compiler, compiler_version())
