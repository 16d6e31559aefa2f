"""The published tree on disk: generations, of which one at a time is seen.

    ROOT/lmod -> .current/lmod        what users give to `module use`; ROOT/tcl likewise
    ROOT/.current -> .generations/N-DIGEST
    ROOT/.generations/N-DIGEST/       manifest.json, lmod/, tcl/

A generation is written aside, flushed to the disk and renamed; then `.current` is replaced by
rename(2).  A reader sees the one before or the one after, for all tools at once, and a crash
leaves the one before.  Earlier generations stay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import stat
from typing import Iterator

from hvd.core import lock
from hvd.core.errors import HvdError
from hvd.deliver.publish import disk
from hvd.deliver.publish.plan import Source, Tree

GENERATIONS = ".generations"
CURRENT = ".current"
MANIFEST = "manifest.json"
LOCK = ".lock"
#: Raised whenever the manifest changes its meaning.
FORMAT = 1
#: The tools that a tree can be for.
TOOLS = ("lmod", "tcl")
#: A generation that is being written; one that was left is of a process that was killed.  Each
#: user has one, as nobody can remove another's.
_STAGING = f".new-{os.getuid()}"


@dataclasses.dataclass(frozen=True)
class Generation:
    """A published tree: the name of its directory, that of the one before, and the tree."""

    name: str = ""
    parent: str = ""
    tree: Tree = Tree()


@contextlib.contextmanager
def locked(root: pathlib.Path) -> Iterator[None]:
    """Hold ``root`` alone; make it where it is not there.

    Raises:
        HvdError: another process publishes there, or it cannot be written to.
    """
    with reported(root):
        if not root.is_dir():
            root.mkdir(parents=True, mode=0o755)
            root.chmod(0o755)
        file = root / LOCK
        if not file.exists():
            descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            os.fchmod(descriptor, 0o644 | _group_write(root))
            os.close(descriptor)
        os.close(os.open(file, os.O_RDWR))
    # some file systems have no locks
    with reported(root), lock.exclusive(file, f"publishes to {root}"):
        yield


def read(root: pathlib.Path) -> Generation:
    """What is published at ``root``; an empty tree where nothing is.

    Raises:
        HvdError: something is there that was not written by :func:`write`, or was changed since.
    """
    for tool in TOOLS:
        _check_link(root / tool, f"{CURRENT}/{tool}")
    link = root / CURRENT
    if not os.path.lexists(link):
        return Generation()
    if not link.is_symlink():
        raise _foreign(link)
    return load(root, pathlib.PurePath(os.readlink(link)).name)


def load(root: pathlib.Path, name: str) -> Generation:
    """The generation called ``name``, each of its files as it was written.

    Raises:
        HvdError: as :func:`read`.
    """
    directory = root / GENERATIONS / name
    manifest = directory / MANIFEST
    try:
        data = json.loads(manifest.read_text())
        digests, parent = data["files"], data["parent"]
        sources = {path: Source(**source) for path, source in data["modules"].items()}
        defaults = data["defaults"]
        if data["format"] != FORMAT:
            raise KeyError(f"format {data['format']}")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise HvdError(
            f"{manifest} cannot be read: {error}",
            "publish to another --root, or put the file back from a backup",
        ) from error
    files = {}
    for path in disk.files(directory):
        name_ = path.relative_to(directory).as_posix()
        if name_ == MANIFEST:
            continue
        if name_ not in digests or path.is_symlink():
            raise _foreign(path)
        files[name_] = path.read_bytes()
        if hashlib.sha256(files[name_]).hexdigest() != digests[name_]:
            raise HvdError(
                f"{path} was changed by hand",
                "take the change back: it would be lost; what is published can be changed by "
                "publishing with --replace",
            )
    gone = sorted(set(digests) - set(files))
    if gone:
        raise HvdError(
            f"{directory / gone[0]} is gone", "put it back from a backup, or go to --rollback"
        )
    return Generation(name, parent, Tree(files, sources, defaults))


def write(root: pathlib.Path, current: Generation, tree: Tree) -> str:
    """Publish ``tree`` after ``current``, and return the name of its generation.

    Raises:
        HvdError: it cannot be written; what was published before still is.
    """
    with reported(root):
        generations = root / GENERATIONS
        if not generations.is_dir():
            generations.mkdir(mode=0o755)
            generations.chmod(0o755 | _shared(root))
        staging = generations / _STAGING
        disk.remove(staging)
        content = {path: hashlib.sha256(each).hexdigest() for path, each in tree.files.items()}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        name = f"{_number(generations):04d}-{digest[:12]}"
        manifest = {
            "format": FORMAT,
            "parent": current.name,
            "modules": {path: dataclasses.asdict(each) for path, each in tree.sources.items()},
            "defaults": dict(tree.defaults),
            "files": content,
        }
        text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
        try:
            disk.put(staging, {**tree.files, MANIFEST: text.encode()})
            os.rename(staging, generations / name)
            disk.flush(generations)
        except BaseException:
            disk.remove(staging)
            raise
        switch(root, name)
        return name


def switch(root: pathlib.Path, name: str) -> None:
    """Let readers see the generation called ``name``, from one moment to the next.

    Raises:
        HvdError: it cannot be; what was seen before still is.
    """
    with reported(root):
        disk.link(root / CURRENT, f"{GENERATIONS}/{name}")
        for tool in TOOLS:
            if (root / CURRENT / tool).is_dir() and not (root / tool).is_symlink():
                disk.link(root / tool, f"{CURRENT}/{tool}")


def _number(generations: pathlib.Path) -> int:
    numbers = [path.name.partition("-")[0] for path in generations.iterdir()]
    return max([int(number) for number in numbers if number.isdigit()], default=0) + 1


def _check_link(link: pathlib.Path, target: str) -> None:
    if os.path.lexists(link) and not (link.is_symlink() and os.readlink(link) == target):
        raise _foreign(link)


def _foreign(path: pathlib.Path) -> HvdError:
    return HvdError(
        f"{path} was not written by ./hvd publish, and stands in its way",
        "move it elsewhere, or publish to another --root",
    )


def _group_write(root: pathlib.Path) -> int:
    """Whether those of the directory's group may write, as a mode."""
    return root.stat().st_mode & stat.S_IWGRP


def _shared(root: pathlib.Path) -> int:
    """What lets a group publish together: the directory's bits for that."""
    return root.stat().st_mode & (stat.S_IWGRP | stat.S_ISGID)


@contextlib.contextmanager
def reported(root: pathlib.Path) -> Iterator[None]:
    """Say in one line what the system refuses below ``root``.

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
