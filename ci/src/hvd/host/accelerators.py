"""CUDA, NCCL, ROCm and oneCCL of this machine, for builds without Spack."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
from typing import Dict, Mapping

from hvd.core import process, stamp
from hvd.core.errors import HvdError

_NCCL_VERSION = re.compile(r"^#define NCCL_(MAJOR|MINOR|PATCH)\s+(\d+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Library:
    prefix: pathlib.Path
    version: str = ""  #: empty if the library does not say


def cuda() -> Library:
    """Return the CUDA toolkit of ``$CUDA_HOME``, or else of ``nvcc`` on PATH."""
    home = os.environ.get("CUDA_HOME")
    nvcc = os.path.join(home, "bin", "nvcc") if home else shutil.which("nvcc")
    if not nvcc or not os.access(nvcc, os.X_OK):
        raise HvdError(
            "nvcc is not on PATH, and CUDA_HOME does not name a CUDA toolkit",
            "load the site's CUDA module, or set CUDA_HOME",
        )
    # nvcc may be a script that starts the real one: only the real one knows its toolkit
    said = subprocess.run(
        [nvcc, "--dryrun", "x.cu"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout
    top = re.search(r"^#\$ TOP=(.*)$", said, re.MULTILINE)
    version = re.search(r"release (\d+\.\d+)", process.output(nvcc, "--version"))
    if not top or not version:
        raise HvdError(f"{nvcc} does not say where its toolkit is", "set CUDA_HOME")
    return Library(pathlib.Path(top[1].strip()).resolve(), version[1])


def nccl(site_packages: pathlib.Path, scratch: pathlib.Path) -> Library:
    """Return NCCL: that of ``$NCCL_HOME``, or else that of PyTorch's wheel.

    Args:
        site_packages: of the interpreter with the framework.
        scratch: directory to make, as a prefix for a linker: a wheel has ``libnccl.so.2``
            alone.
    """
    home = os.environ.get("NCCL_HOME")
    prefix = pathlib.Path(home) if home else site_packages / "nvidia" / "nccl"
    header = prefix / "include" / "nccl.h"
    libraries = sorted(prefix.glob("lib*/libnccl.so*"))
    if not header.is_file() or not libraries:
        raise HvdError(
            f"{prefix} has no NCCL (include/nccl.h and lib/libnccl.so)",
            "set NCCL_HOME, or install PyTorch with CUDA, whose NCCL is then taken",
        )
    version = ".".join(number for _, number in _NCCL_VERSION.findall(header.read_text()))
    if libraries[0].name == "libnccl.so":
        return Library(prefix, version)
    links = {"include": header.parent, "lib/libnccl.so": libraries[0]}
    return Library(_linked(scratch, links), version)


def rocm() -> Dict[str, Library]:
    """Return HIP, its Clang and RCCL, by Spack's names: those of ``hipcc`` on PATH.

    The prefix of Clang is from ``$HIPCXX``, CMake's variable for the compiler, where that is set.
    """
    hipcc = shutil.which("hipcc")
    if not hipcc:
        raise HvdError(
            "hipcc is not on PATH", "load the site's ROCm module, or put its bin directory on PATH"
        )
    said = process.output(hipcc, "--version")
    version = re.search(r"HIP version: (\d+\.\d+)", said)
    clang = re.search(r"clang version (\d+)(?:.*\n)+InstalledDir: (.*)", said)
    if not version or not clang:
        raise HvdError(f"{hipcc} --version does not name HIP and its Clang", "reinstall ROCm")
    prefix = pathlib.Path(hipcc).parent.parent
    directory = pathlib.Path(clang[2])
    numbered = directory / f"clang++-{clang[1]}"
    if numbered.exists():
        # Debian's, a link into the prefix of its LLVM
        directory = numbered.resolve().parent
    cxx = pathlib.Path(os.environ.get("HIPCXX") or directory / "clang++")
    for needed, remedy in (
        (cxx, "set HIPCXX to the clang++ of ROCm"),
        (prefix / "include" / "rccl" / "rccl.h", "install RCCL beside HIP"),
    ):
        if not needed.is_file():
            raise HvdError(f"there is no {needed}, which a build with {hipcc} needs", remedy)
    return {
        "hip": Library(prefix, version[1]),
        "llvm-amdgpu": Library(cxx.parent.parent),
        "rccl": Library(prefix),
    }


def ccl(prefix: pathlib.Path, scratch: pathlib.Path) -> Library:
    """Return oneCCL for CPUs: that of ``$CCL_ROOT``, or else that of the wheels in ``prefix``.

    Args:
        prefix: of the interpreter with the framework.
        scratch: directory to make, as a prefix of the usual layout: the wheels have the build for
            CPUs in ``include/cpu`` and ``lib/cpu``.
    """
    root = os.environ.get("CCL_ROOT")
    if root:
        if not pathlib.Path(root, "include", "oneapi", "ccl.hpp").is_file():
            raise HvdError(
                f"CCL_ROOT: {root} has no oneCCL (include/oneapi/ccl.hpp)",
                "set it to the installation, with the build for CPUs",
            )
        return Library(pathlib.Path(root))
    if not (prefix / "lib" / "cpu" / "libccl.so").is_file():
        raise HvdError(
            f"{prefix} has no oneCCL for CPUs (lib/cpu/libccl.so)",
            "set CCL_ROOT, or: pip install oneccl-devel==2021.10.0; newer wheels are for GPUs",
        )
    links = {name: prefix / name / "cpu" for name in ("include", "lib")}
    return Library(_linked(scratch, links))


def _linked(scratch: pathlib.Path, links: Mapping[str, pathlib.Path]) -> pathlib.Path:
    """Make the directory ``scratch`` of symbolic links, by their paths in it."""
    stamp.clear(scratch)
    for name, target in links.items():
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).symlink_to(target)
    return scratch
