"""``./hvd clean``: remove what runs left."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
from typing import Dict, List, Optional

import typer

from hvd.cli.common import flag
from hvd.core import console, lock, paths
from hvd.core.errors import HvdError, nearest
from hvd.model.versions import pinned


def kinds() -> Dict[str, List[pathlib.Path]]:
    """What can be removed, by kind."""
    state, cache = paths.state(), paths.cache()
    return {
        "logs": [state / "logs", state / "reports"],
        "builds": [state / name for name in ("pip", "built", "activation", "environments")]
        + [state / pair.name for pair in pinned().pairs],
        "frameworks": [state / "frameworks"],
        "matrix": [state / "matrix"],
        "cache": [cache],
    }


def clean(
    names: Optional[List[str]] = typer.Argument(
        None, metavar="KIND", help="logs, builds, frameworks, matrix, cache."
    ),
    every: bool = flag("--all", "All kinds but cache, which other checkouts share."),
) -> None:
    """Remove what runs left, by kind; without a kind, say how much there is.

    builds has what Spack and pip installed; cache has clones and downloads of all checkouts.
    """
    known = kinds()
    for name in names or ():
        if name not in known:
            raise HvdError(f"no kind is called '{name}'", nearest(name, known))
    chosen = [name for name in known if name != "cache"] if every else names
    if not chosen:
        for name, places in known.items():
            print(f"{name:<12}{_size(places):>10.1f} MB  {' '.join(map(paths.shorten, places))}")
        return
    with lock.exclusive(paths.state() / "lock"):
        for name in chosen:
            size = _size(known[name])
            for place in known[name]:
                shutil.rmtree(place, ignore_errors=True)
            left = [place for place in known[name] if place.exists()]
            if left:
                raise HvdError(f"cannot remove {paths.shorten(left[0])}", "check who owns it")
            console.note(f"{name}: {size:.1f} MB removed")


def _size(places: List[pathlib.Path]) -> float:
    """Megabytes on the disk, each hard link once."""
    found = {}
    for place in places:
        for path in place.rglob("*"):
            # a run in another checkout may remove files
            with contextlib.suppress(FileNotFoundError):
                state = path.lstat()
                found[state.st_dev, state.st_ino] = state.st_blocks * 512
    return sum(found.values()) / 1e6
