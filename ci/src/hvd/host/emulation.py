"""Debian roots of other processors, whose programs QEMU's user emulation runs.

What costs most runs natively: such a root has the native root of its release at ``/native``, with
compilers for the other processor, CMake, make, git and a Python.  ``/usr/local/bin``, which comes
first on PATH, has links to these.  ``python3`` is the native one, which runs ``./hvd``;
``/usr/bin/python3`` is Debian's of the other processor.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
from typing import Dict, List, Optional

from hvd.core.errors import HvdError
from hvd.core.files import write_atomically

#: Where such a root sees the native one.
NATIVE = pathlib.Path("/native")
#: Where the kernel keeps which program runs the files of another processor.
_BINFMT = pathlib.Path("/proc/sys/fs/binfmt_misc")
#: Where Debian's packages describe that.
_DESCRIBED = pathlib.Path("/usr/lib/binfmt.d")
#: The natively run tools that make code for the other processor: the names that builds use.
_CROSS = {
    **{name: name for name in ("cpp", "g++", "gcc")},
    "c++": "g++",
    "cc": "gcc",
    **{name: name for name in ("ar", "as", "ld", "nm", "objcopy", "objdump", "ranlib")},
    **{name: name for name in ("readelf", "strip")},
}
#: Those that do not care for the processor.
_TOOLS = ("cmake", "git", "make", "patch")
#: Directories of libraries that packages add to the loader's when they are configured.
_LIBRARIES = ("blas", "lapack", "openmpi/lib")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A processor family by its names: Debian's, that of uname and QEMU, and GNU's triplet."""

    name: str
    machine: str
    triplet: str


ARCHITECTURES = (
    Architecture("arm64", "aarch64", "aarch64-linux-gnu"),
    Architecture("ppc64el", "ppc64le", "powerpc64le-linux-gnu"),
)


def of(root: str) -> Optional[Architecture]:
    """Return the other processor of a root such as ``bookworm-arm64``; None for a native one."""
    name = root.partition("-")[2]
    return next((each for each in ARCHITECTURES if each.name == name), None)


def register(architecture: Architecture) -> None:
    """Let the kernel run the programs of another processor by QEMU, if it does not.

    Raises:
        HvdError: QEMU is not installed, or this user may not change what the kernel runs.
    """
    name = f"qemu-{architecture.machine}"
    entry = _BINFMT / name
    described = _DESCRIBED / f"{name}.conf"
    install = "install it: apt-get install qemu-user-static"
    if not described.is_file():
        raise HvdError(f"{name} is not installed: there is no {described}", install)
    try:
        if not (_BINFMT / "register").exists():
            subprocess.run(
                ["mount", "-t", "binfmt_misc", "binfmt_misc", _BINFMT],
                check=True,
                capture_output=True,
            )
        if not entry.exists():
            (_BINFMT / "register").write_text(described.read_text())
        text = entry.read_text()
    except (OSError, subprocess.CalledProcessError) as error:
        raise HvdError(
            f"the kernel does not run programs of {architecture.machine}: {error}",
            "as root: mount -t binfmt_misc binfmt_misc "
            f"{_BINFMT}; cat {described} > {_BINFMT}/register",
        ) from error
    flags = next((line for line in text.splitlines() if line.startswith("flags:")), "")
    # F: the kernel holds the emulator open, which a root does not have
    if not text.startswith("enabled") or "F" not in flags.partition(":")[2]:
        raise HvdError(
            f"{entry} is not enabled, or has no flag F",
            f"as root: echo -1 > {entry}; ./hvd then registers it again",
        )


def finish(place: pathlib.Path, architecture: Architecture) -> None:
    """Give an unpacked root the files that configured packages and native tools need."""
    for name in ("passwd", "group"):
        shutil.copy(place / "usr/share/base-passwd" / f"{name}.master", place / "etc" / name)
    below = f"/usr/lib/{architecture.triplet}"
    libraries = "".join(f"{below}/{name}\n" for name in ("", *_LIBRARIES))
    write_atomically(place / "etc/ld.so.conf", libraries.encode())
    python = place / "usr/local/bin/python3"
    # by a link it would look for its modules beside that
    write_atomically(python, f'#!/bin/sh\nexec {NATIVE}/usr/bin/python3 "$@"\n'.encode())
    python.chmod(0o755)
    for path, target in _links(place, architecture).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def _links(place: pathlib.Path, architecture: Architecture) -> Dict[pathlib.Path, str]:
    """Return the links of a root, and where each leads."""
    local, programs = place / "usr/local/bin", NATIVE / "usr/bin"
    links = {
        local / name: str(programs / f"{architecture.triplet}-{tool}")
        for name, tool in _CROSS.items()
    }
    links.update({local / name: str(programs / name) for name in _TOOLS})
    # the alternatives of packages that were not configured
    links.update({path.with_suffix(""): path.name for path in place.glob("usr/bin/*.openmpi")})
    # for native programs their loader and libraries, and for linkers what their scripts name
    loader = pathlib.Path(os.path.realpath("/lib64/ld-linux-x86-64.so.2"))
    native = loader.parent.name
    links[place / "lib64" / "ld-linux-x86-64.so.2"] = f"{NATIVE}/usr/lib/{native}/{loader.name}"
    for directory in (f"usr/lib/{native}", f"usr/{architecture.triplet}"):
        links[place / directory] = str(NATIVE / directory)
    return links


def path() -> str:
    """Return PATH in such a root: native tools, its own programs, and what it lacks natively."""
    own: List[str] = ["/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return os.pathsep.join([*own, str(NATIVE / "usr/bin")])
