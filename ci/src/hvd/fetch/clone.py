"""Clones of the pinned repositories, whole or not there at all."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Optional

from hvd.core import paths, process
from hvd.core.errors import CommandFailed, HvdError
from hvd.model.versions import Pin

#: Seconds that one git command may take.
TIMEOUT = 900
_REMEDY = "check the address and the network, or give another one; see ./hvd setup --help"
#: git asks no questions, and gives up on a connection that is dead for 30 seconds.
UNATTENDED = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1",
    "GIT_HTTP_LOW_SPEED_TIME": "30",
}


def ensure(address: str, pin: Pin, destination: pathlib.Path, log: pathlib.Path) -> None:
    """Put the commit ``pin`` of the repository at ``address`` into ``destination``.

    The clone is made beside ``destination`` and renamed when it is whole, so that a killed
    ``./hvd`` leaves none that looks ready.  A ``destination`` that exists is left alone.
    """
    if destination.is_dir():
        return
    destination.parent.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent)
    )
    environment = {**os.environ, **UNATTENDED}
    try:
        for command in (
            ["git", "init", "--quiet", scratch],
            ["git", "-C", scratch, "fetch", "--quiet", "--depth=1", address, pin.commit],
            ["git", "-C", scratch, "checkout", "--quiet", "--detach", "FETCH_HEAD"],
        ):
            process.run(command, log=log, env=environment, timeout=TIMEOUT)
        os.rename(scratch, destination)
    except CommandFailed as error:
        raise HvdError(
            f"cannot fetch commit {pin.commit[:12]} ({pin.version}) from {address}",
            _REMEDY,
            log,
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def git(*words: object, within: Optional[pathlib.Path] = None) -> subprocess.CompletedProcess:
    """Run git unattended in ``within`` or this checkout; return its status and its output."""
    return subprocess.run(
        ["git", "-C", *map(str, [within or paths.ROOT, *words])],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **UNATTENDED},
        timeout=TIMEOUT,
    )


def commit(directory: pathlib.Path) -> str:
    """The commit that the checkout ``directory`` is at; empty where it is no git checkout."""
    if not (directory / ".git").exists():
        return ""
    done = git("rev-parse", "HEAD", within=directory)
    return done.stdout.strip() if done.returncode == 0 else ""
