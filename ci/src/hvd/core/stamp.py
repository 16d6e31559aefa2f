"""Stamps: what a finished piece of work was made from.

Work is done in place and stamped when it is whole.  No stamp, or one of other inputs, means
that the work has to be done again from the start: a killed ``./hvd`` leaves no stamp.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
from typing import Any, Iterable

from hvd.core.files import write_atomically


def of(*inputs: Any) -> str:
    """A digest of ``inputs``: JSON values, and paths by the contents of their files."""
    total = hashlib.sha256()
    for item in inputs:
        if isinstance(item, pathlib.Path):
            for file in files(item):
                total.update(f"\0{file.name}\0".encode())
                total.update(file.read_bytes())
        else:
            total.update(b"\0" + json.dumps(item, sort_keys=True).encode())
    return total.hexdigest()


def matches(stamp: pathlib.Path, digest: str) -> bool:
    """Return whether the work stamped by the file ``stamp`` was made from ``digest``."""
    try:
        return stamp.read_text().strip() == digest
    except OSError:
        return False


def put(stamp: pathlib.Path, digest: str) -> None:
    """Stamp finished work."""
    write_atomically(stamp, f"{digest}\n".encode())


def clear(directory: pathlib.Path) -> None:
    """Remove ``directory`` and all in it, if it is there.

    Its ``stamp`` goes first, so that half of it does not pass for the whole if this is killed.
    """
    if directory.exists():
        (directory / "stamp").unlink(missing_ok=True)
        shutil.rmtree(directory)


def files(path: pathlib.Path) -> Iterable[pathlib.Path]:
    """The files below ``path`` that count, or itself where it is one."""
    if path.is_file():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and ".spack-env" not in file.parts
    )
