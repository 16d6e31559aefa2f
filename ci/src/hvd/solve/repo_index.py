"""Where Spack keeps its indices of packages: a directory for each state of our recipes.

Spack knows the index of a repository by the repository's namespace, and renews it where a
``package.py`` is newer.  With one directory for all, it would go by the index of another checkout,
or by an old one when only a patch has changed: "Couldn't find patch for package".
"""

from __future__ import annotations

import pathlib
import shutil

from hvd.core import paths, stamp
from hvd.core.files import kept

#: Those of Spack's own packages, by kind, which Spack takes long to make: in the directory of any
#: state, or where they were before there were such.
_BUILTIN = ("[0-9a-f]*/*/builtin-*-index.json", "*/builtin-*-index.json")


def directory(pair: str) -> pathlib.Path:
    """The directory for a pair of Spack and packages, and for our recipes as they are.

    A new one begins with the newest indices of Spack's own packages.
    """
    place = paths.cache() / "spack" / pair / stamp.of(paths.PACKAGES)[:16]

    def fill(whole: pathlib.Path) -> None:
        found = [file for pattern in _BUILTIN for file in place.parent.glob(pattern)]
        # the newest one comes last, with its time, by which Spack knows what it lacks
        for file in sorted(found, key=lambda each: each.stat().st_mtime):
            (whole / file.parent.name).mkdir(exist_ok=True)
            shutil.copy2(file, whole / file.parent.name / file.name)

    return kept(place, fill)
