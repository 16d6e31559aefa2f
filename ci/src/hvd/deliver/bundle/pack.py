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
from hvd.fetch import python_index

#: The checksum of each file of the bundle but this one, for sha256sum(1).
SUMS = "SHA256SUMS"
#: Facts about the bundle, as shell variables for install.sh.
FACTS = "bundle.env"
INSTALLER = pathlib.Path(__file__).with_name("install.sh")
#: Modes of tarfile by the end of an archive's name.
_MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz"}


@contextlib.contextmanager
def gathering(destination: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory for the content of a bundle, which is at ``destination`` when the block ends.

    Raises:
        HvdError: ``destination`` exists, or cannot be written.
    """
    if destination.exists():
        raise HvdError(f"{destination} is there already", "remove it, or name another with --to")
    name = destination.name
    end = next((end for end in _MODES if name.endswith(end)), "")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=destination.parent) as scratch:
            directory = pathlib.Path(scratch, name[: len(name) - len(end)])
            directory.mkdir()
            yield directory
            packed = _archive(directory, _MODES[end]) if end else directory
            os.rename(packed, destination)
    except OSError as error:
        raise HvdError(
            f"cannot write {destination}: {error.strerror or error}",
            "check the space left on its disk, or name another place with --to",
        ) from error


def seal(directory: pathlib.Path, facts: Mapping[str, str]) -> str:
    """Add ``install.sh``, the facts that it needs, and the checksums of all files.

    Returns:
        The checksum of the checksums, for people to compare.
    """
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in facts.items())
    write_atomically(directory / FACTS, text.encode())
    installer = shutil.copyfile(INSTALLER, directory / INSTALLER.name)
    installer.chmod(0o755)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    lines = [f"{python_index.digest(path)}  {path.relative_to(directory)}\n" for path in files]
    write_atomically(directory / SUMS, "".join(lines).encode())
    return python_index.digest(directory / SUMS)


def _archive(directory: pathlib.Path, mode: str) -> pathlib.Path:
    packed = directory.with_name(f"{directory.name}.packed")
    # most of it is wheels, which are compressed already
    options = {"compresslevel": 1} if mode == "w:gz" else {}
    with tarfile.open(packed, mode, **options) as archive:
        archive.add(directory, directory.name)
    return packed
