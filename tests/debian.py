"""Programs of Debian packages, unpacked in the cache where the system lacks them."""

from __future__ import annotations

import pathlib

from hvd.host import packages
from tests import needs


def unpacked(*names: str, dependencies: bool = False) -> pathlib.Path:
    """Return a directory with the files of packages; skips where apt cannot fetch them.

    Args:
        dependencies: include those that they depend on and this machine lacks.
    """
    with needs.provided():
        return packages.unpacked(*names, dependencies=dependencies)
