"""Trees and links on disk, flushed before anything refers to them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import stat
from typing import List, Mapping


def put(staging: pathlib.Path, files: Mapping[str, bytes]) -> None:
    """Write ``files`` below the directory ``staging``, which must not be there yet.

    Whatever the umask is, all can read them and their owner alone can write.
    """
    directories = {staging}
    for path in files:
        directories.update(staging / parent for parent in pathlib.PurePath(path).parents)
    for directory in sorted(directories):
        directory.mkdir(mode=0o755)
        # a set-group-ID bit that was inherited stays
        directory.chmod(stat.S_IMODE(directory.stat().st_mode) & stat.S_ISGID | 0o755)
    for path, content in files.items():
        with open(staging / path, "xb") as sink:
            os.fchmod(sink.fileno(), 0o644)
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())
    for directory in directories:
        flush(directory)


def link(link: pathlib.Path, target: str) -> None:
    """Let ``link`` be a link to ``target``, from one moment to the next."""
    temporary = link.with_name(f".{link.name.lstrip('.')}.new")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    temporary.symlink_to(target)
    os.replace(temporary, link)
    flush(link.parent)


def flush(directory: pathlib.Path) -> None:
    """Have what was made, renamed or removed in ``directory`` survive a crash."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(directory: pathlib.Path) -> None:
    """Remove ``directory`` and all in it, if it is there."""
    if directory.exists():
        shutil.rmtree(directory)


def files(directory: pathlib.Path) -> List[pathlib.Path]:
    """What is below ``directory`` and no directory itself."""
    found: List[pathlib.Path] = []
    for parent, directories, names in os.walk(directory):
        here = pathlib.Path(parent)
        links = [name for name in directories if (here / name).is_symlink()]
        found += [here / name for name in [*names, *links]]
    return sorted(found)
