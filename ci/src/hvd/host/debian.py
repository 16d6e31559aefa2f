"""Run a command in another Debian release, with other compilers and another Python.

A root may also be of another processor: see `hvd.host.emulation`.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from typing import List, Sequence, Set

from hvd.core import lock, paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.host import emulation
from hvd.host.emulation import Architecture
from hvd.model.versions import VERSIONS, pinned

#: Seconds for a root.
_TIMEOUT = 3600
#: The host's files that the command sees: how names are resolved, and whom to trust.
_SHARED = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs")


def root(suite: str, log: pathlib.Path, options: Sequence[str] = ()) -> pathlib.Path:
    """Return the root of a release with the packages of ``ci/versions.yaml``; make it if needed.

    Args:
        suite: Debian's name of the release; behind a dash its name of another processor, or what
            else sets the root apart, such as rocm-5.
        log: file for what mmdebstrap prints.
        options: for apt, in making it.

    Raises:
        HvdError: ``ci/versions.yaml`` has no such release, mmdebstrap is missing or fails, or this
            machine cannot emulate the root's processor.
    """
    packages = pinned().debian.get(suite)
    if packages is None:
        raise HvdError(
            f"{paths.shorten(VERSIONS)}: key 'debian': there is no '{suite}'",
            f"use one of {', '.join(pinned().debian)}, or add it there",
        )
    place = paths.cache() / "debian" / suite
    foreign = emulation.of(suite)
    if foreign:
        for other in (_release(suite), emulation.QEMU):
            root(other, log, options)
    done = place.with_name(f"{suite}.stamp")
    made_by = [pathlib.Path(emulation.__file__)] if foreign else []
    digest = stamp.of(packages, *made_by)
    # before the lock, which another command may have for a moment to find out the same
    if stamp.matches(done, digest):
        return place
    with lock.exclusive(place.with_name(f"{suite}.lock"), f"makes a root of {suite}"):
        if stamp.matches(done, digest):
            return place
        mmdebstrap = program("mmdebstrap")
        done.unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        command: List[object] = [mmdebstrap, "--components=main"]
        command += _unpacked(foreign) if foreign else ["--variant=minbase"]
        command += [f"--aptopt={option}" for option in options]
        command += [_added(other) for other in sorted(_others(packages))]
        command += [f"--include={','.join(packages)}", _release(suite), place]
        # without root, mmdebstrap makes a user namespace
        process.run(command, log=log, timeout=_TIMEOUT)
        # which shells show, and results name
        write_atomically(place / "etc/debian_chroot", f"{suite}\n".encode())
        if foreign:
            _finish(place, foreign, log)
        stamp.put(done, digest)
    return place


def _release(suite: str) -> str:
    return suite.partition("-")[0]


def _others(packages: Sequence[str]) -> Set[str]:
    """The releases behind the names of packages."""
    return {package.partition("/")[2] for package in packages} - {""}


def _added(release: str) -> str:
    """The option that lets apt take packages of another release from the same mirror."""
    sources = '"$1"/etc/apt/sources.list'
    return (
        f"--setup-hook=sed -n 's/^\\(deb .*\\) [^ ]* main$/\\1 {release} main/p' {sources} "
        f"> {sources}.d/{release}.list"
    )


def _unpacked(foreign: Architecture) -> List[str]:
    """The options for a root of another processor.

    Its packages are not configured: emulated, that takes ten times as long.
    """
    return [
        "--variant=extract",
        "--include=?essential",
        f"--architectures={foreign.name}",
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        # not every mirror has it for every processor
        """--setup-hook=sed -i /security/d "$1"/etc/apt/sources.list""",
    ]


def _finish(place: pathlib.Path, foreign: Architecture, log: pathlib.Path) -> None:
    """Do for an unpacked root what configuring its packages would have done."""
    emulation.finish(place, foreign)
    modules = [f"/usr/lib/{each.name}" for each in sorted(place.glob("usr/lib/python3*"))]
    for command in (
        ["ldconfig"],
        # natively; the other processor's Python reads it as well
        ["python3", "-m", "compileall", "-q", "-j0", *modules],
    ):
        process.run([*_words(place), "--", *command], log=log, timeout=_TIMEOUT)


def run(place: pathlib.Path, command: Sequence[str], binds: Sequence[str]) -> int:
    """Run ``command`` in the root at ``place``, in this checkout and with this cache.

    ``.venv`` and ``.hvd`` of the checkout are for one system, so that each root has its own.

    Args:
        binds: more directories of the host that the command sees, at the same place.

    Returns:
        The command's exit status.

    Raises:
        HvdError: one of ``binds`` is no absolute path of something there, bwrap is missing, or
            this machine cannot emulate the root's processor.
    """
    words = _words(place)
    for path in binds:
        if not os.path.isabs(path) or not os.path.exists(path):
            raise HvdError(
                f"--bind: {path} is not the absolute path of a file or directory", "correct it"
            )
        words += ["--ro-bind", path, path]
    for path in (str(paths.ROOT), str(paths.cache())):
        words += ["--bind", path, path]
    own = state(place).parent
    for name in (".venv", ".hvd"):
        (own / name).mkdir(parents=True, exist_ok=True)
        words += ["--bind", str(own / name), str(paths.ROOT / name)]
    # the caller's is for this system
    words += ["--unsetenv", "HVD_STATE"]
    return subprocess.call([*words, "--chdir", os.getcwd(), "--", *command])


def state(place: pathlib.Path) -> pathlib.Path:
    """Return what commands in the root at ``place`` see as this checkout's ``.hvd``."""
    return paths.ROOT / ".hvd" / "debian" / place.name / ".hvd"


def _words(place: pathlib.Path) -> List[str]:
    """The command line that runs another one in the root at ``place``, up to that one."""
    words = [program("bwrap"), "--bind", str(place), "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--ro-bind", "/sys", "/sys", "--tmpfs", "/tmp", "--die-with-parent"]
    for path in _SHARED:
        words += ["--ro-bind-try", path, path]
    foreign = emulation.of(place.name)
    if foreign:
        emulation.register(foreign, place.with_name(emulation.QEMU))
        native = place.with_name(_release(place.name))
        words += ["--ro-bind", str(native), str(emulation.NATIVE)]
        words += ["--setenv", "PATH", emulation.path()]
    return words


def program(name: str) -> str:
    found = shutil.which(name)
    if not found:
        package = {"bwrap": "bubblewrap"}.get(name, name)
        raise HvdError(f"{name} is not on PATH", f"install it: apt-get install {package}")
    return found
