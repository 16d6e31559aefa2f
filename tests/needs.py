"""What tests need of a machine: skip where it is missing."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from typing import Iterator

import pytest

from hvd.core.errors import HvdError

#: The loopback of a network namespace: ranks on one machine talk over it, and over nothing else.
ALONE = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def namespaces() -> None:
    """Skip where no network namespace can be made."""
    if subprocess.run([*ALONE, "true"]).returncode:
        pytest.skip("no network namespace can be made here")


def programs(*names: str) -> pytest.MarkDecorator:
    """A mark that skips tests where one of these programs is not on PATH."""
    missing = [name for name in names if not shutil.which(name)]
    return pytest.mark.skipif(bool(missing), reason=f"not on PATH: {', '.join(missing)}")


@contextlib.contextmanager
def provided() -> Iterator[None]:
    """Skip where the block cannot get what it needs."""
    try:
        yield
    except HvdError as error:
        pytest.skip(error.message)
