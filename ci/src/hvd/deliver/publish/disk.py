"""Directory trees and links on disk, flushed before anything refers to them."""

from __future__ import annotations

import os
import pathlib
import stat
from typing import Mapping


def put(directory: pathlib.Path, files: Mapping[str, bytes]) -> None:
    """Write ``files`` below a new ``directory``.

    Everyone can read them and only the owner can write them, whatever the umask.
    """
    directories = {directory}
    for path in files:
        directories.update(directory / parent for parent in pathlib.PurePath(path).parents)
    for each in sorted(directories):
        each.mkdir(0o755)
        # an inherited set-group-ID bit stays
        each.chmod(each.stat().st_mode & stat.S_ISGID | 0o755)
    for path, content in files.items():
        with open(directory / path, "xb") as sink:
            os.fchmod(sink.fileno(), 0o644)
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())
    for each in directories:
        flush(each)


def link(link: pathlib.Path, target: str) -> None:
    """Create the symbolic link ``link``, or replace it atomically."""
    temporary = link.with_name(f".{link.name.lstrip('.')}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)
    flush(link.parent)


def flush(directory: pathlib.Path) -> None:
    """Write the entries of ``directory`` to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
