"""Clones of the pinned repositories, whole or not there at all."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Dict

from hvd.core import process
from hvd.core.errors import CommandFailed, HvdError
from hvd.model.versions import Pin

#: Seconds that one git command may take.
TIMEOUT = 900
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

    Raises:
        HvdError: the address cannot be reached or does not hold the commit.
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
            "check the address and the network, or give another one; see ./hvd setup --help",
            log,
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def references(address: str, *patterns: str) -> Dict[str, str]:
    """Return the commits of a repository's references, such as ``HEAD`` or ``refs/tags/v1``.

    Args:
        patterns: those to ask for, as ``git ls-remote`` takes them; none for all.

    Raises:
        HvdError: the address cannot be reached.
    """
    done = subprocess.run(
        ["git", "ls-remote", "--quiet", address, *patterns],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **UNATTENDED},
        timeout=TIMEOUT,
    )
    if done.returncode != 0:
        raise HvdError(
            f"{address}: {(done.stderr.strip().splitlines() or ['git ls-remote failed'])[0]}",
            "check the address and the network, or give another one; see ./hvd setup --help",
        )
    found = dict(line.split("\t")[::-1] for line in done.stdout.splitlines())
    # of an annotated tag, what it points to
    peeled = {
        name[: -len("^{}")]: commit for name, commit in found.items() if name.endswith("^{}")
    }
    return {name: commit for name, commit in {**found, **peeled}.items() if "^{}" not in name}


def commit(directory: pathlib.Path) -> str:
    """The commit that the checkout ``directory`` is at; empty where it is no git checkout."""
    if not (directory / ".git").exists():
        return ""
    done = subprocess.run(
        ["git", "-C", str(directory), "rev-parse", "HEAD"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip() if done.returncode == 0 else ""
