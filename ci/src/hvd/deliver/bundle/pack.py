"""A bundle as a directory or an archive, with a checksum for each file."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import shutil
import tarfile
import tempfile
from typing import Iterator, Mapping

from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.fetch import index

#: A checksum for each file of the bundle but this one, as sha256sum(1) reads them.
SUMS = "SHA256SUMS"
#: What install.sh knows of the bundle, as variables of a shell.
FACTS = "bundle.env"
#: Sets it up.
INSTALLER = pathlib.Path(__file__).with_name("install.sh")
#: How an archive is packed, by the end of its name.
_MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz"}


def mode(destination: pathlib.Path) -> str:
    """How ``destination`` is packed; empty for a directory."""
    found = [kind for end, kind in _MODES.items() if destination.name.endswith(end)]
    return found[0] if found else ""


@contextlib.contextmanager
def gathering(destination: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory to gather a bundle in; when the block ends it is at ``destination``, whole.

    Raises:
        HvdError: there is something already, or it cannot be written.
    """
    if destination.exists():
        raise HvdError(f"{destination} is there already", "remove it, or name another with --to")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        scratch = pathlib.Path(
            tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent)
        )
    except OSError as error:
        raise HvdError(
            f"cannot write {destination}: {error.strerror}", "name another place with --to"
        ) from error
    try:
        name = destination.name
        for end in _MODES:
            name = name[: -len(end)] if name.endswith(end) else name
        directory = scratch / name
        directory.mkdir()
        yield directory
        if mode(destination):
            _archive(directory, destination)
        else:
            os.rename(directory, destination)
    except OSError as error:
        raise HvdError(
            f"cannot write {destination}: {error.strerror or error}",
            "check the space left on its disk, or name another place with --to",
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def seal(directory: pathlib.Path, facts: Mapping[str, str]) -> str:
    """Add ``install.sh``, what it needs to know, and the checksums of all.

    Returns:
        The checksum of the checksums, for those who are to compare it.
    """
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in facts.items())
    write_atomically(directory / FACTS, text.encode())
    shutil.copyfile(INSTALLER, directory / INSTALLER.name)
    (directory / INSTALLER.name).chmod(0o755)
    names = sorted(
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    )
    lines = [f"{index.digest(directory / name)}  {name}\n" for name in names]
    write_atomically(directory / SUMS, "".join(lines).encode())
    return index.digest(directory / SUMS)


def _archive(directory: pathlib.Path, destination: pathlib.Path) -> None:
    """Pack ``directory``; wheels, which are most of it, are compressed as they are."""
    kind = mode(destination)
    options = {"compresslevel": 1} if kind == "w:gz" else {}
    packed = directory.with_name("archive")
    with tarfile.open(packed, kind, **options) as archive:
        archive.add(directory, directory.name)
    os.replace(packed, destination)
