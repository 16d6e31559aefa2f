"""Run commands so that their output is logged and nothing of them is left behind."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from typing import Dict, List, Mapping, Optional, Sequence

import psutil

from hvd.core.errors import CommandFailed, redacted

#: Lines of a failing command's output that its error carries.
TAIL_LINES = 20
#: Seconds between SIGTERM and SIGKILL.
GRACE = 3.0

#: Descriptors of locks, which every command inherits; see `hvd.core.lock`.
inherited: List[int] = []
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


@dataclasses.dataclass(frozen=True)
class Completed:
    """A finished command: its exit status, its wall time in seconds and its log.

    ``begin`` is where in the log its output starts, in bytes.
    """

    status: int
    seconds: float
    log: pathlib.Path
    begin: int = 0

    @property
    def output(self) -> str:
        """Everything the command printed, standard error included."""
        return self.log.read_bytes()[self.begin :].decode(errors="replace")


def adopt_orphans() -> None:
    """Become the parent of every orphaned descendant (Linux; elsewhere a no-op).

    Launchers put ranks into sessions of their own; without this, a rank whose launcher
    died would belong to init and could no longer be found.  See prctl(2),
    PR_SET_CHILD_SUBREAPER.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(
    command: Sequence[object],
    *,
    log: pathlib.Path,
    cwd: Optional[pathlib.Path] = None,
    env: Optional[Mapping[str, str]] = None,
    timeout: Optional[float] = None,
    check: bool = True,
) -> Completed:
    """Run ``command`` to its end, its output in ``log``.

    Args:
        command: program and arguments; no shell is involved.
        log: file to which standard output and standard error are appended.
        cwd: working directory.
        env: the whole environment; the caller's where None.
        timeout: limit in seconds; when it is reached the whole process tree is killed.
        check: raise on a non-zero exit status.
    """
    words = list(map(str, command))
    printable = redacted(shlex.join(words))
    log.parent.mkdir(parents=True, exist_ok=True)
    before = psutil.Process().children(recursive=True)
    begin = time.monotonic()
    with open(log, "ab") as sink:
        sink.write(f"$ {printable}\n".encode())
        sink.flush()
        start = sink.tell()
        status: Optional[int] = None
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=env,
                start_new_session=True,
                pass_fds=inherited,
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = child.wait(timeout)
        except OSError as error:
            raise CommandFailed(printable, 127, str(error), log, 0.0) from error
        finally:
            # also one that had started when a signal came
            end_descendants(spare=before)
            _redact(log, start)
    seconds = time.monotonic() - begin
    if status is None or (check and status != 0):
        raise CommandFailed(printable, status, tail(log), log, seconds)
    return Completed(status, seconds, log, start)


def _redact(log: pathlib.Path, begin: int) -> None:
    """Take passwords of addresses out of a command's output, which begins at byte ``begin``."""
    with open(log, "r+b") as file:
        file.seek(begin)
        said = file.read().decode("latin-1")
        clean = redacted(said)
        if clean != said:
            file.seek(begin)
            file.write(clean.encode("latin-1"))
            file.truncate()


def tail(log: pathlib.Path, lines: int = TAIL_LINES) -> str:
    """The last ``lines`` lines of ``log``; empty where there is no such file."""
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    return ""


def end_descendants(spare: Sequence[psutil.Process] = ()) -> None:
    """End the descendants of this process, orphans among them, but those of ``spare``."""
    spared = {process.pid for process in spare}
    for send in (signal.SIGTERM, signal.SIGKILL):
        found = psutil.Process().children(recursive=True)
        doomed = [each for each in found if each.pid not in spared and alive(each)]
        if not doomed:
            return
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(send)
        psutil.wait_procs(doomed, timeout=GRACE)


def alive(process: psutil.Process) -> bool:
    """Return whether it is more than an entry that its parent has not read yet."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def output(*command: object, env: Optional[Mapping[str, str]] = None, timeout: float = 60) -> str:
    """Return what a short ``command`` prints to standard output, without blanks around it.

    Args:
        env: the whole environment; the caller's where None.
        timeout: limit in seconds.

    Returns:
        An empty text if it cannot be started, fails or takes too long.
    """
    words = list(map(str, command))
    keywords = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": True}
    try:
        return subprocess.run(words, env=env, timeout=timeout, **keywords).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def clean_environment(path: str = "") -> Dict[str, str]:
    """This process's environment without what would let another Python's packages in."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
        and not name.startswith("HOROVOD_")
    }
    environment["PYTHONNOUSERSITE"] = "1"
    if path:
        environment["PATH"] = path
    return environment
