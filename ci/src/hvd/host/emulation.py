"""Debian roots of other processors, whose programs QEMU's user emulation runs.

QEMU comes from a root as well: one of the host may be too old.
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
#: The root with QEMU.
QEMU = "trixie-qemu"
#: The natively run tools that make code for the other processor: the names that builds use.
_CROSS = {
    **{name: name for name in ("cpp", "g++", "gcc", "gfortran")},
    "c++": "g++",
    "cc": "gcc",
    **{name: name for name in ("ar", "as", "ld", "nm", "objcopy", "objdump", "ranlib")},
    **{name: name for name in ("readelf", "strip")},
}
#: Those that do not care for the processor.
_TOOLS = ("cmake", "git", "make", "patch")
#: The alternatives of essential packages.
_ALTERNATIVES = {"awk": "mawk", "which": "which.debianutils"}
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


def register(architecture: Architecture, qemu: pathlib.Path) -> None:
    """Let the kernel run the programs of another processor by QEMU, if it does not.

    Args:
        qemu: the root with QEMU.

    Raises:
        HvdError: this user may not change what the kernel runs.
    """
    # the kernel takes the entry that was registered last, so that it precedes those of the host
    entry = _BINFMT / f"hvd-{architecture.machine}"
    try:
        if not (_BINFMT / "register").exists():
            subprocess.run(
                ["mount", "-t", "binfmt_misc", "binfmt_misc", _BINFMT],
                check=True,
                capture_output=True,
            )
        if not entry.exists():
            (_BINFMT / "register").write_text(_description(entry.name, architecture, qemu))
        text = entry.read_text()
    except (OSError, subprocess.CalledProcessError) as error:
        raise HvdError(
            f"the kernel does not run programs of {architecture.machine}: {error}",
            "run this once as root; the kernel keeps it until the next boot",
        ) from error
    if not text.startswith("enabled"):
        raise HvdError(f"{entry} is not enabled", f"as root: echo 1 > {entry}")


def _description(name: str, architecture: Architecture, qemu: pathlib.Path) -> str:
    """How the kernel knows the programs of a processor, from Debian's package.

    https://docs.kernel.org/admin-guide/binfmt-misc.html
    """
    packaged = qemu / "usr/lib/binfmt.d" / f"qemu-{architecture.machine}.conf"
    words = packaged.read_text().strip().split(":")
    # F, which is among Debian's flags: the kernel holds the emulator open, which a root lacks
    words[1], words[6] = name, f"{qemu}{words[6]}"
    return ":".join(words)


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
    # where sites have them
    links.update({place / "usr/bin" / name: str(programs / name) for name in _TOOLS})
    # the alternatives of packages that were not configured
    links.update({place / "usr/bin" / name: target for name, target in _ALTERNATIVES.items()})
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
