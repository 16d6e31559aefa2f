"""The published tree on disk: generations, one of which is visible.

    ROOT/lmod -> .current/lmod        for `module use`; ROOT/tcl likewise
    ROOT/.current -> .generations/N-DIGEST
    ROOT/.generations/N-DIGEST/       manifest.json, lmod/, tcl/

A generation is written aside, flushed to the disk and renamed; then `.current` is replaced by
rename(2).  A reader sees the old one or the new one, for all tools at once, and a crash leaves
the old one.  Earlier generations stay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import stat
from typing import Dict, Iterator, Mapping

from hvd.core import lock
from hvd.core.errors import HvdError
from hvd.deliver.publish.plan import LANGUAGES, Origin, Tree

GENERATIONS = ".generations"
CURRENT = ".current"
MANIFEST = "manifest.json"
LOCK = ".lock"
#: Raised whenever the meaning of the manifest changes.
FORMAT = 1
#: A generation that is being written, or was when its process was killed.  Each user has one,
#: as no user can remove another's.
_STAGING = f".new-{os.getuid()}"


@dataclasses.dataclass(frozen=True)
class Generation:
    """A published tree: the name of its directory, that of the previous one, and the tree."""

    name: str = ""
    parent: str = ""
    tree: Tree = Tree()


@contextlib.contextmanager
def locked(root: pathlib.Path) -> Iterator[None]:
    """Create ``root`` if needed, and lock it.

    Raises:
        HvdError: another process publishes there, or it cannot be written to.
    """
    file = root / LOCK
    with reported(root):
        if not root.is_dir():
            root.mkdir(mode=0o755, parents=True)
            root.chmod(0o755)
        for each in (file, root / GENERATIONS):
            if each.is_symlink():
                raise _foreign(each)
        if not file.exists():
            file.touch(0o644)
            file.chmod(0o644 | root.stat().st_mode & stat.S_IWGRP)
    # some file systems have no locks
    with reported(root), lock.exclusive(file, f"publishes to {root}"):
        yield


def read(root: pathlib.Path) -> Generation:
    """The published generation; an empty one if there is none.

    Raises:
        HvdError: a file is missing, was changed by hand, or was not written by this module.
    """
    for tool in LANGUAGES:
        link = root / tool
        ours = link.is_symlink() and os.readlink(link) == f"{CURRENT}/{tool}"
        if os.path.lexists(link) and not ours:
            raise _foreign(link)
    link = root / CURRENT
    if not os.path.lexists(link):
        return Generation()
    if not link.is_symlink():
        raise _foreign(link)
    return load(root, pathlib.PurePath(os.readlink(link)).name)


def load(root: pathlib.Path, name: str) -> Generation:
    """The generation called ``name``, every file of it as it was written; see :func:`read`."""
    directory = root / GENERATIONS / name
    manifest = directory / MANIFEST
    try:
        data = json.loads(manifest.read_text())
        if data["format"] != FORMAT:
            raise KeyError(f"format {data['format']}")
        digests, parent, defaults = data["files"], data["parent"], data["defaults"]
        sources = {path: Origin(**source) for path, source in data["modules"].items()}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise HvdError(
            f"{manifest} cannot be read: {error}",
            "publish to another --root, or restore the file from a backup",
        ) from error
    files: Dict[str, bytes] = {}
    for path in sorted(directory.rglob("*")):
        relative = path.relative_to(directory).as_posix()
        if relative == MANIFEST or (path.is_dir() and not path.is_symlink()):
            continue
        if relative not in digests or path.is_symlink():
            raise _foreign(path)
        files[relative] = path.read_bytes()
        if _digest(files[relative]) != digests[relative]:
            raise HvdError(
                f"{path} was changed by hand",
                "undo the change, which would be lost; to change what is published, use --replace",
            )
    missing = sorted(set(digests) - set(files))
    if missing:
        raise HvdError(
            f"{directory / missing[0]} is gone", "restore it from a backup, or use --rollback"
        )
    return Generation(name, parent, Tree(files, sources, defaults))


def write(root: pathlib.Path, current: Generation, tree: Tree) -> str:
    """Publish ``tree`` after ``current``, and return the name of its generation.

    Raises:
        HvdError: it cannot be written; what was published before still is.
    """
    digests = {path: _digest(content) for path, content in tree.files.items()}
    manifest = {
        "format": FORMAT,
        "parent": current.name,
        "modules": {path: dataclasses.asdict(each) for path, each in tree.sources.items()},
        "defaults": dict(tree.defaults),
        "files": digests,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    generations = root / GENERATIONS
    staging = generations / _STAGING
    with reported(root):
        if not generations.is_dir():
            generations.mkdir(0o755)
            # a group that shares the root publishes together
            shared = root.stat().st_mode & (stat.S_IWGRP | stat.S_ISGID)
            generations.chmod(0o755 | shared)
        numbers = [path.name.partition("-")[0] for path in generations.iterdir()]
        number = max((int(each) for each in numbers if each.isdigit()), default=0) + 1
        content = json.dumps(digests, sort_keys=True).encode()
        name = f"{number:04d}-{_digest(content)[:12]}"
        shutil.rmtree(staging, ignore_errors=True)
        try:
            _put(staging, {**tree.files, MANIFEST: text.encode()})
            os.rename(staging, generations / name)
            _flush(generations)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        switch(root, name)
    return name


def switch(root: pathlib.Path, name: str) -> None:
    """Make the generation called ``name`` the visible one, atomically.

    Raises:
        HvdError: it cannot be; the previous one is still visible.
    """
    with reported(root):
        _link(root / CURRENT, f"{GENERATIONS}/{name}")
        for tool in LANGUAGES:
            if (root / CURRENT / tool).is_dir() and not (root / tool).is_symlink():
                _link(root / tool, f"{CURRENT}/{tool}")


@contextlib.contextmanager
def reported(root: pathlib.Path) -> Iterator[None]:
    """Report errors of the system below ``root``.

    Raises:
        HvdError: the system refused something.
    """
    try:
        yield
    except OSError as error:
        raise HvdError(
            f"cannot publish to {error.filename or root}: {error.strerror or error}; "
            "what was published before is as it was",
            "check the directory's permissions, its quota and the space left on its disk, "
            "or publish to another --root",
        ) from error


def _put(directory: pathlib.Path, files: Mapping[str, bytes]) -> None:
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
        _flush(each)


def _link(link: pathlib.Path, target: str) -> None:
    """Create the symbolic link ``link``, or replace it atomically."""
    temporary = link.with_name(f".{link.name.lstrip('.')}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)
    _flush(link.parent)


def _flush(directory: pathlib.Path) -> None:
    """Write the entries of ``directory`` to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _foreign(path: pathlib.Path) -> HvdError:
    return HvdError(
        f"{path} is in the way: ./hvd publish did not write it",
        "move it elsewhere, or publish to another --root",
    )
