"""Horovod's source tree: its sdist from the Python index, unpacked and patched."""

from __future__ import annotations

import os
import pathlib
import sys
import tarfile
from typing import Iterable

from hvd.core import paths, process
from hvd.fetch import python_index
from hvd.model.recipe import Recipe


def sdist(recipe: Recipe, version: str) -> pathlib.Path:
    """The sdist of ``version`` in the cache, checked against the recipe's sha256."""
    sha256 = recipe.versions()[version]
    path = paths.cache() / "sources" / "pip" / f"horovod-{version}.tar.gz"
    if not path.is_file() or python_index.digest(path) != sha256:
        python_index.fetch("horovod", path.name, sha256, path)
    return path


def unpack(archive: pathlib.Path, directory: pathlib.Path) -> pathlib.Path:
    """Unpack ``archive``, whose checksum is known, into the new ``directory``.

    Returns:
        The one directory in it.
    """
    directory.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        if sys.version_info >= (3, 12):
            tar.extractall(directory, filter="data")
        else:
            tar.extractall(directory)
    return next(path for path in directory.iterdir() if path.is_dir())


def patch(tree: pathlib.Path, patches: Iterable[pathlib.Path], log: pathlib.Path) -> None:
    """Apply ``patches`` to ``tree``, in order."""
    # git must not take a checkout around the tree for the tree to patch
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    for path in patches:
        process.run(["git", "apply", "-p1", path], log=log, cwd=tree, env=environment)
