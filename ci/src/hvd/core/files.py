"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from typing import Callable

from hvd.core.errors import HvdError


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` such that no reader and no crash sees a part of it."""
    # Not tempfile: its files are private to the user, a report is for the whole group.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as sink:
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise HvdError(
            f"cannot write {path}: {error.strerror or error}",
            "Check the directory's permissions, its quota and the space left on its disk.",
        ) from error


def kept(place: pathlib.Path, fill: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Return the directory ``place``, which ``fill`` makes if it is not there.

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
