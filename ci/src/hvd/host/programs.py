"""The output of programs."""

from __future__ import annotations

import subprocess
from typing import Mapping, Optional


def output(*command: object, env: Optional[Mapping[str, str]] = None, timeout: float = 60) -> str:
    """Return what ``command`` prints to standard output, without blanks around it.

    Args:
        command: program and arguments.
        env: the whole environment; the caller's where None.
        timeout: limit in seconds.

    Returns:
        An empty text if it cannot be started, fails or takes too long.
    """
    try:
        done = subprocess.run(
            list(map(str, command)),
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
