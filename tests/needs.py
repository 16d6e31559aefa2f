"""What tests need of a machine: skip where it is missing, and keep what was fetched."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Callable

import pytest

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


def kept(place: pathlib.Path, fill: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Return the directory ``place`` of the cache, which ``fill`` makes if it is not there.

    It is there whole or not at all, also where several processes make it.
    """
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
            whole = pathlib.Path(scratch, "whole")
            whole.mkdir()
            fill(whole)
            try:
                os.replace(whole, place)
            except OSError:
                if not place.is_dir():  # else another process was faster
                    raise
    return place
