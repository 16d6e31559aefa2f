"""Publish a module: write a whole new tree beside the current one, then move a link to it.

    ROOT/lmod -> .current/lmod, ROOT/tcl -> .current/tcl     for ``module use``
    ROOT/.current -> .generations/0007
    ROOT/.generations/0007/                                  lmod/, tcl/, previous

A reader sees the old tree or the new one.  Earlier trees stay; ``previous`` names the one to go
back to.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
from typing import Iterator, Optional

from hvd.core import lock
from hvd.core.errors import HvdError
from hvd.deliver.modulefile import TOOLS, Module


def publish(
    root: pathlib.Path, module: Module, default: bool = False, replace: bool = False
) -> bool:
    """Add ``module`` to the tree below ``root``; return whether that changed anything.

    Args:
        default: make it the default version; the first one is that in any case.
        replace: replace a module with the same name and other content.
    """
    files = {f"{module.directory}/{path}": text.encode() for path, text in module.files.items()}
    own, choice = files
    generations = root / ".generations"
    with _locked(root):
        current = _current(root)
        if current:
            there = [path for path in files if (current / path).is_file()]
            old = {path: (current / path).read_bytes() for path in there}
            if choice in old and not default:
                files[choice] = old[choice]
            if old == files:
                # an interrupted publication may lack the tool's link
                _switch(root, current)
                return False
            if old.get(own, files[own]) != files[own] and not replace:
                raise HvdError(
                    f"{root}: there is another module {module.name}",
                    "use --suffix WORD to rename the new one, or --replace to replace the old one",
                )
        with tempfile.TemporaryDirectory(prefix=".new-", dir=generations) as scratch:
            tree = pathlib.Path(scratch, "tree")
            if current:
                shutil.copytree(current, tree, symlinks=True)
            for path in tree.rglob("*"):
                if path.is_symlink():
                    raise _foreign(current / path.relative_to(tree))
            for path, content in files.items():
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).write_bytes(content)
            (tree / "previous").write_text(current.name if current else "")
            numbers = [re.match(r"\d*", path.name)[0] for path in generations.iterdir()]
            made = generations / f"{1 + max(int(each or 0) for each in numbers):04d}"
            os.rename(tree, made)
        # to the disk, before a link to it
        subprocess.run(["sync", made, *made.rglob("*"), generations], check=True)
        _switch(root, made)
    return True


def roll_back(root: pathlib.Path) -> str:
    """Make the tree before the current one the current one, and return its name."""
    with _locked(root):
        current = _current(root)
        previous = current / "previous" if current else root
        name = previous.read_text() if previous.is_file() else ""
        if not name:
            raise HvdError(f"{root} has no earlier publication to go back to", "publish first")
        _switch(root, _tree(root, f".generations/{name}"))
        return name


@contextlib.contextmanager
def _locked(root: pathlib.Path) -> Iterator[None]:
    """Lock ``root``, and create what it lacks.

    Everyone can read new files and only their owner can write them, but for the lock and the
    directory of trees: where the root is for a group, they are for it, too.
    """
    generations, file = root / ".generations", root / ".lock"
    umask = os.umask(0o022)
    try:
        root.mkdir(parents=True, exist_ok=True)
        os.umask(0o022 & ~(root.stat().st_mode & stat.S_IWGRP))
        if not os.path.lexists(generations):
            generations.mkdir()
        if not os.path.lexists(file):
            file.touch(exist_ok=False)
        os.umask(0o022)
        if generations.is_symlink():
            raise _foreign(generations)
        with lock.exclusive(file, f"publishes to {root}"):
            # of killed processes; those of other users stay
            for left in generations.glob(".new-*"):
                shutil.rmtree(left, ignore_errors=True)
            yield
    finally:
        os.umask(umask)


def _current(root: pathlib.Path) -> Optional[pathlib.Path]:
    """The current tree; None if there is none."""
    for link in (root / ".current", *(root / tool for tool in TOOLS)):
        target = os.readlink(link) if link.is_symlink() else ""
        if os.path.lexists(link) and not target.startswith((".generations/", ".current/")):
            raise _foreign(link)
    link = root / ".current"
    return _tree(root, os.readlink(link)) if link.is_symlink() else None


def _tree(root: pathlib.Path, target: str) -> pathlib.Path:
    directory = root / target
    named = re.fullmatch(r"\.generations/\d+(-\w+)?", target)
    if not named or directory.is_symlink() or not directory.is_dir():
        raise _foreign(directory)
    return directory


def _switch(root: pathlib.Path, tree: pathlib.Path) -> None:
    links = {root / ".current": f".generations/{tree.name}"}
    links.update({root / tool: f".current/{tool}" for tool in TOOLS if (tree / tool).is_dir()})
    for link, target in links.items():
        temporary = root / f".{link.name.lstrip('.')}.new"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        os.replace(temporary, link)


def _foreign(path: pathlib.Path) -> HvdError:
    return HvdError(
        f"{path} is in the way: ./hvd publish did not write it",
        "move it elsewhere, or publish to another --root",
    )
