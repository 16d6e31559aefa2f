"""Run a command in a root of another Debian release or for another processor.

    .venv/bin/python tests/debian_root.py trixie -- ./hvd dev matrix --filter compiler=gcc-14
    .venv/bin/python tests/debian_root.py bookworm-ppc64el -- ./hvd run

mmdebstrap makes a root once, in the cache; bubblewrap runs the command there, in this checkout.
The roots and their packages are in ci/versions.yaml, key 'debian'.

QEMU runs the programs of a root for another processor; the kernel takes it from root
`trixie-qemu`.  What costs most runs natively: the native root of the same release is at /native,
with cross compilers, CMake, make, git and a Python, and /usr/local/bin has links to them.
`python3` is the native one, which runs ./hvd; /usr/bin/python3 is that of the other processor.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from typing import List, Sequence

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOTS = yaml.safe_load((ROOT / "ci" / "versions.yaml").read_text())["debian"]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "hvd")
#: Debian's names of processors, to those of uname and QEMU, and GNU's triplets.
PROCESSORS = {
    "arm64": ("aarch64", "aarch64-linux-gnu"),
    "ppc64el": ("ppc64le", "powerpc64le-linux-gnu"),
}
#: PATH in a root for another processor: native tools, its own programs, what it lacks.
FOREIGN_PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/native/usr/bin"
QEMU = "trixie-qemu"
BINFMT = pathlib.Path("/proc/sys/fs/binfmt_misc")
#: The host's files for names, and whom to trust.
SHARED = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs")
#: Where pyenv and uv install Pythons; a cell of the matrix may need another than the release has.
PYTHONS = (".pyenv", ".local/share/uv")


class RootError(Exception):
    """A root cannot be made or entered on this machine."""


def machine(name: str) -> str:
    """Return the other processor of a root as uname calls it; empty for a native root."""
    return PROCESSORS.get(name.partition("-")[2], ("", ""))[0]


def state(name: str) -> pathlib.Path:
    """Return what commands in the root ``name`` see as this checkout's ``.hvd``."""
    return ROOT / ".hvd" / "debian" / name / ".hvd"


def make(name: str) -> pathlib.Path:
    """Return the directory of the root ``name``; make it if needed."""
    if name not in ROOTS:
        raise RootError(f"ci/versions.yaml: debian: no root '{name}'; use one of {[*ROOTS]}")
    release, place = name.partition("-")[0], CACHE / "roots" / name
    command = ["mmdebstrap", "--components=main", f"--include={','.join(ROOTS[name])}"]
    # a mirror may lag behind, or be a snapshot; its signatures are checked all the same
    command += ['--aptopt=Acquire::Check-Valid-Until "false"']
    if machine(name):
        for other in (release, QEMU):
            make(other)
        _emulate(machine(name))
        # unpacked and not configured: emulated, that takes ten times as long
        command += ["--variant=extract", "--include=?essential"]
        command += [f"--architectures={name.partition('-')[2]}"]
        command += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"]
        # not every mirror has it for every processor
        command += ['--setup-hook=sed -i /security/d "$1"/etc/apt/sources.list']
    else:
        command += ["--variant=minbase"]
    for other in sorted({package.partition("/")[2] for package in ROOTS[name]} - {""}):
        # packages of another release, from the same mirror
        lines = rf"sed -n 's/^\(deb .*\) [^ ]* main$/\1 {other} main/p'"
        sources = '"$1"/etc/apt/sources.list'
        command += [f"--setup-hook={lines} {sources} > {sources}.d/{other}.list"]
    done, digest = place.with_name(f"{name}.stamp"), shlex.join(command)
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.with_name(f"{name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists() and done.read_text() == digest:
            return place
        done.unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        _call([*command, release, str(place)])
        # shells show it, and results name it
        (place / "etc" / "debian_chroot").write_text(f"{name}\n")
        if machine(name):
            _configure(name, place)
        done.write_text(digest)
    return place


def _configure(name: str, place: pathlib.Path) -> None:
    """Do what configuring the packages would have done, and link to the native tools."""
    triplet, local = PROCESSORS[name.partition("-")[2]][1], place / "usr" / "local" / "bin"
    for each in ("passwd", "group"):
        shutil.copy(place / f"usr/share/base-passwd/{each}.master", place / "etc" / each)
    libraries = ["", "/blas", "/lapack", "/openmpi/lib"]
    lines = "".join(f"/usr/lib/{triplet}{each}\n" for each in libraries)
    (place / "etc" / "ld.so.conf").write_text(lines)
    local.mkdir(parents=True, exist_ok=True)
    # a link would look for its modules beside itself
    (local / "python3").write_text('#!/bin/sh\nexec /native/usr/bin/python3 "$@"\n')
    (local / "python3").chmod(0o755)
    programs = place.with_name(name.partition("-")[0]) / "usr" / "bin"
    tools = [each.name for each in programs.glob(f"{triplet}-*")]
    links = {local / each[len(triplet) + 1 :]: f"/native/usr/bin/{each}" for each in tools}
    links |= {local / "cc": "gcc", local / "c++": "g++"}
    for each in ("cmake", "git", "make", "patch"):
        links[place / "usr/bin" / each] = f"/native/usr/bin/{each}"
    # Debian's alternatives
    links |= {place / "usr/bin/awk": "mawk", place / "usr/bin/which": "which.debianutils"}
    links |= {each.with_suffix(""): each.name for each in place.glob("usr/bin/*.openmpi")}
    # for native programs their loader and libraries, and what the scripts of linkers name
    loader = pathlib.Path("/lib64/ld-linux-x86-64.so.2").resolve()
    native = f"usr/lib/{loader.parent.name}"
    links |= {place / each: f"/native/{each}" for each in (native, f"usr/{triplet}")}
    links |= {place / "lib64" / "ld-linux-x86-64.so.2": f"/native/{native}/{loader.name}"}
    for path, target in links.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    modules = [f"/usr/lib/{each.name}" for each in sorted(place.glob("usr/lib/python3*"))]
    # natively, for the other processor's Python to read
    for command in (["ldconfig"], ["python3", "-m", "compileall", "-q", "-j0", *modules]):
        _call([*_enter(name), "--", *command])


def run(name: str, command: Sequence[str], binds: Sequence[str] = ()) -> int:
    """Run ``command`` in the root ``name``, in this checkout; return its exit status.

    ``.venv`` and ``.hvd`` of the checkout are for one system, so that each root has its own.

    Args:
        binds: absolute paths of this machine that the command sees, read-only.
    """
    make(name)
    words = _enter(name)
    for path in binds:
        words += ["--ro-bind", path, path]
    for path in map(str, (ROOT, CACHE)):
        words += ["--bind", path, path]
    for each in (".venv", ".hvd"):
        own = state(name).with_name(each)
        own.mkdir(parents=True, exist_ok=True)
        words += ["--bind", str(own), str(ROOT / each)]
    if not machine(name):
        for path in (str(pathlib.Path.home() / each) for each in PYTHONS):
            words += ["--ro-bind-try", path, path]
    words += ["--unsetenv", "HVD_STATE", "--chdir", os.getcwd()]
    return subprocess.call([*words, "--", *command])


def _enter(name: str) -> List[str]:
    """Return the command line up to the command that runs in the root."""
    place = CACHE / "roots" / name
    words = ["bwrap", "--bind", str(place), "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--ro-bind", "/sys", "/sys", "--tmpfs", "/tmp", "--die-with-parent"]
    for path in SHARED:
        words += ["--ro-bind-try", path, path]
    if machine(name):
        words += ["--ro-bind", str(place.with_name(name.partition("-")[0])), "/native"]
        words += ["--setenv", "PATH", FOREIGN_PATH]
    return words


def _emulate(processor: str) -> None:
    """Let the kernel run the programs of a processor with the QEMU of its root.

    https://docs.kernel.org/admin-guide/binfmt-misc.html
    """
    entry, qemu = BINFMT / f"hvd-{processor}", CACHE / "roots" / QEMU
    try:
        if not (BINFMT / "register").exists():
            _call(["mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT)])
        if not entry.exists():
            described = qemu / "usr/lib/binfmt.d" / f"qemu-{processor}.conf"
            words = described.read_text().strip().split(":")
            # F is among Debian's flags: the kernel holds QEMU open, which the root lacks
            words[1], words[6] = entry.name, f"{qemu}{words[6]}"
            (BINFMT / "register").write_text(":".join(words))
        enabled = entry.read_text().startswith("enabled")
    except OSError as error:
        raise RootError(f"cannot emulate {processor}: {error}; run this once as root") from error
    if not enabled:
        raise RootError(f"{entry} is off; as root: echo 1 > {entry}")


def _call(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
    except FileNotFoundError as error:
        raise RootError(f"{command[0]} is not on PATH; install Debian's package") from error
    except subprocess.CalledProcessError as error:
        raise RootError(f"`{shlex.join(command)}` exits with status {error.returncode}") from error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("root", help="such as trixie, or bookworm-ppc64el")
    parser.add_argument("--bind", action="append", default=[], help="path to mount read-only")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    try:
        sys.exit(run(given.root, given.command, given.bind))
    except RootError as error:
        sys.exit(f"error: {error}")
