"""A mount namespace with this machine's own files, and others at some places."""

from __future__ import annotations

import os
import pathlib
from typing import Dict, List, Mapping, Optional

from hvd.core.errors import HvdError

#: Paths in the namespace to what is seen there; None for nothing.
Places = Mapping[str, Optional[pathlib.Path]]


def words(places: Places) -> List[str]:
    """Return the command line of bwrap up to the command to run.

    Nothing is written to this machine for it: a directory that gets a place to mount at is a
    new one, with what the machine has in it mounted again.

    Args:
        places: absolute paths.

    Raises:
        HvdError: a link of this machine is in the way.
    """
    command = ["bwrap", "--die-with-parent", "--unshare-pid"]
    tree: Dict[str, dict] = {}
    for path in places:
        below = tree
        for part in pathlib.PurePath(path).parts[1:]:
            below = below.setdefault(part, {})
    command += _directory("/", tree, places)
    return [*command, "--proc", "/proc", "--dev-bind", "/dev", "/dev"]


def _directory(path: str, tree: Mapping[str, dict], places: Places) -> List[str]:
    """Return the options that make the directory ``path`` again, with ``tree`` below it."""
    options: List[str] = []
    for name in os.listdir(path) if os.path.isdir(path) else ():
        child = os.path.join(path, name)
        if name in tree or child in ("/proc", "/dev"):
            continue
        if os.path.islink(child):
            options += ["--symlink", os.readlink(child), child]
        else:
            options += ["--bind-try", child, child]
    for name, below in tree.items():
        child = os.path.join(path, name)
        if child in places:
            for place in [child, *sorted(each for each in places if each.startswith(f"{child}/"))]:
                if places[place] is not None:
                    options += ["--bind", str(places[place]), place]
        elif os.path.islink(child):
            raise HvdError(f"{child} is a link here, so that nothing can be put below it")
        else:
            options += ["--dir", child, *_directory(child, below, places)]
    return options
