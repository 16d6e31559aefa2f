"""One ``./hvd`` at a time in a checkout, and no orphans of a killed one.

What `process.run` starts inherits the lock.  A killed ``./hvd`` that left a compiler running
thus still holds it, and the next one ends what holds the lock before it begins.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import time
from typing import Iterator

import psutil

from hvd.core import process
from hvd.core.errors import HvdError

#: Seconds that orphans get to end.
PATIENCE = 10.0


@contextlib.contextmanager
def exclusive(path: pathlib.Path, what: str = "works in this checkout") -> Iterator[None]:
    """Hold the lock file ``path`` for the length of the block.

    Args:
        what: what the one that holds it does, for the error.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # in a directory that others share, a link would have another file written
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise HvdError(f"{path} is a symbolic link", "remove it; see who made it first") from None
    try:
        if not _taken(descriptor):
            owner = os.pread(descriptor, 32, 0).decode().strip()
            if owner.isdigit() and psutil.pid_exists(int(owner)):
                raise HvdError(
                    f"another ./hvd (process {owner}) {what}",
                    f"wait for it, or end it with: kill {owner}",
                )
            _end_orphans(descriptor, path)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        process.inherited.append(descriptor)
        yield
    finally:
        with contextlib.suppress(ValueError):
            process.inherited.remove(descriptor)
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    """Take the lock, and return whether nobody else has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end_orphans(descriptor: int, path: pathlib.Path) -> None:
    """Kill what a killed ``./hvd`` left running, and take the lock."""
    deadline = time.monotonic() + PATIENCE
    while not _taken(descriptor):
        if time.monotonic() > deadline:
            raise HvdError(
                f"processes of a killed ./hvd hold {path} and do not end", f"see: lsof {path}"
            )
        for each in psutil.process_iter():
            # another user's files cannot be read, and are not ours to close
            with contextlib.suppress(psutil.Error):
                files = [file.path for file in each.open_files()]
                if each.pid != os.getpid() and str(path.resolve()) in files:
                    each.kill()
        time.sleep(0.05)
