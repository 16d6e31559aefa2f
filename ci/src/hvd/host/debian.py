"""Run a command in another Debian release, with other compilers and another Python."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from typing import Sequence

from hvd.core import lock, paths, process, stamp
from hvd.core.errors import HvdError
from hvd.model.versions import VERSIONS, pinned

#: Seconds for a root.
_TIMEOUT = 3600
#: The host's files that the command sees: how names are resolved, and whom to trust.
_SHARED = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs")


def root(suite: str, log: pathlib.Path, options: Sequence[str] = ()) -> pathlib.Path:
    """Return the root of a release with the packages of ``ci/versions.yaml``; make it if needed.

    Args:
        suite: Debian's name of the release.
        log: file for what mmdebstrap prints.
        options: for apt, in making it.

    Raises:
        HvdError: ``ci/versions.yaml`` has no such release, or mmdebstrap is missing or fails.
    """
    packages = pinned().debian.get(suite)
    if packages is None:
        raise HvdError(
            f"{paths.shorten(VERSIONS)}: key 'debian': there is no '{suite}'",
            f"use one of {', '.join(pinned().debian)}, or add it there",
        )
    place = paths.cache() / "debian" / suite
    done = place.with_name(f"{suite}.stamp")
    with lock.exclusive(place.with_name(f"{suite}.lock"), f"makes a root of {suite}"):
        if stamp.matches(done, stamp.of(packages)):
            return place
        program = _program("mmdebstrap")
        done.unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        command = [program, "--variant=minbase", "--components=main"]
        command += [f"--aptopt={option}" for option in options]
        command += [f"--include={','.join(packages)}", suite, place]
        # without root, mmdebstrap makes a user namespace
        process.run(command, log=log, timeout=_TIMEOUT)
        stamp.put(done, stamp.of(packages))
    return place


def run(place: pathlib.Path, command: Sequence[str], binds: Sequence[str]) -> int:
    """Run ``command`` in the root at ``place``, in this checkout and with this cache.

    ``.venv`` and ``.hvd`` of the checkout are for one system, so that each root has its own.

    Args:
        binds: more directories of the host that the command sees, at the same place.

    Returns:
        The command's exit status.

    Raises:
        HvdError: one of ``binds`` is no absolute path of something there, or bwrap is missing.
    """
    words = [_program("bwrap"), "--bind", str(place), "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--ro-bind", "/sys", "/sys", "--tmpfs", "/tmp", "--die-with-parent"]
    for path in _SHARED:
        words += ["--ro-bind-try", path, path]
    for path in binds:
        if not os.path.isabs(path) or not os.path.exists(path):
            raise HvdError(
                f"--bind: {path} is not the absolute path of a file or directory", "correct it"
            )
        words += ["--ro-bind", path, path]
    for path in (str(paths.ROOT), str(paths.cache())):
        words += ["--bind", path, path]
    for name in (".venv", ".hvd"):
        own = paths.ROOT / ".hvd" / "debian" / place.name / name
        own.mkdir(parents=True, exist_ok=True)
        words += ["--bind", str(own), str(paths.ROOT / name)]
    return subprocess.call([*words, "--chdir", os.getcwd(), "--", *command])


def _program(name: str) -> str:
    found = shutil.which(name)
    if not found:
        package = {"bwrap": "bubblewrap"}.get(name, name)
        raise HvdError(f"{name} is not on PATH", f"install it: apt-get install {package}")
    return found
