"""One ``./hvd`` at a time in a checkout, and no orphans of a killed one.

Every process that ``./hvd`` starts carries a variable that names the lock.  When ``./hvd`` was
killed and left a compiler or a Spack running, the next one gets the lock at once, finds these
processes by that variable, and ends them before they can write another byte.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import time
from typing import Iterator, List

import psutil

from hvd.core.errors import HvdError
from hvd.core.process import alive

#: Carried by every process below ``./hvd``: the owner and the lock it runs under, as `mark` writes
#: them.
MARK = "HVD_LOCK"
#: Seconds that orphans get to end.
PATIENCE = 10.0


@contextlib.contextmanager
def exclusive(path: pathlib.Path, what: str = "works in this checkout") -> Iterator[None]:
    """Hold the lock file ``path`` for the length of the block.

    Args:
        what: what the one that holds it does, for the error.

    Raises:
        HvdError: another ``./hvd`` holds it, or orphans of an earlier one do not end.
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
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode().strip() or "?"
            raise HvdError(
                f"another ./hvd (process {owner}) {what}",
                f"wait for it, or end it with: kill {owner}",
            ) from None
        end_orphans(path)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        os.environ[MARK] = mark(os.getpid(), path)
        yield
    finally:
        os.environ.pop(MARK, None)
        os.close(descriptor)


def mark(owner: int, path: pathlib.Path) -> str:
    """Return what process ``owner`` marks its own with: ``PID:DEVICE:INODE:PATH``.

    A path alone is not enough: in another root or container it is another file, and another
    ``./hvd`` may hold that.
    """
    file = path.stat()
    return f"{owner}:{file.st_dev}:{file.st_ino}:{path}"


def end_orphans(path: pathlib.Path) -> None:
    """Kill what an earlier ``./hvd`` under the lock ``path`` left running.

    Raises:
        HvdError: some process does not go away.
    """
    orphans = _marked(path)
    for process in orphans:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + PATIENCE
    while (left := list(filter(alive, orphans))) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left:
        numbers = " ".join(str(process.pid) for process in left)
        raise HvdError(
            f"processes of an earlier ./hvd do not end: {numbers}",
            f"look at them: ps -fp {numbers.replace(' ', ',')}",
        )


def _marked(path: pathlib.Path) -> List[psutil.Process]:
    """Return the processes with the mark of another owner of ``path`` than this process."""
    if not path.exists():
        return []
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    _, _, wanted = mark(os.getpid(), path).partition(":")
    found = []
    for process in psutil.process_iter():
        # another user's environment cannot be read, and is not ours to end
        with contextlib.suppress(psutil.Error):
            owner, _, where = process.environ().get(MARK, "").partition(":")
            if process.pid not in own and where == wanted and owner != str(os.getpid()):
                found.append(process)
    return found
