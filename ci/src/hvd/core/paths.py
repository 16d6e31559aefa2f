"""The paths of everything.  ``./hvd`` writes below two directories.

``<checkout>/.hvd``, or what ``HVD_STATE`` names, belongs to this checkout: virtual environments,
Spack's configuration and installations, logs, reports.  ``./hvd dev matrix`` gives each of its
builds a directory of its own in this way.  ``${XDG_CACHE_HOME:-~/.cache}/hvd`` is shared by all
checkouts of a user and holds what can be downloaded again: clones, sources, Spack's own caches.
"""

from __future__ import annotations

import os
import pathlib
from typing import List

from hvd.core.errors import HvdError

#: The checkout that this file belongs to.
ROOT = pathlib.Path(__file__).resolve().parents[4]
#: Where Python finds this package.
SOURCE = ROOT / "ci" / "src"
ENVIRONMENTS = ROOT / "environments"
REPOSITORY = ROOT / "spack_repo" / "hvd"
PACKAGES = ROOT / "packages"
VERSIONS = ROOT / "ci" / "versions.yaml"
#: What ``./hvd`` itself is run with; uv makes it, with a checksum for each file of each release.
REQUIREMENTS = ROOT / "ci" / "requirements.txt"


def state() -> pathlib.Path:
    """Return the directory of this checkout's own files."""
    return pathlib.Path(os.path.abspath(os.environ.get("HVD_STATE") or ROOT / ".hvd"))


#: The variable that names a centre's own directory of environments and sites.
SITES_VARIABLE = "HVD_SITES"


def environments() -> List[pathlib.Path]:
    """Return the directories of environments and sites, in the order they are searched.

    A centre's own directory, which ``HVD_SITES`` names, comes before the checkout's.
    """
    outside = os.environ.get(SITES_VARIABLE)
    return [*([pathlib.Path(outside).absolute()] if outside else []), ENVIRONMENTS]


def require_environments() -> None:
    """Refuse a centre's directory that is not there."""
    for each in environments():
        if not each.is_dir():
            raise HvdError(f"{SITES_VARIABLE}: {each} is not a directory", "correct or unset it")


def cache() -> pathlib.Path:
    """Return the user's cache directory for this project, by the XDG specification."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the specification: a relative path is to be ignored
    home = pathlib.Path(base) if os.path.isabs(base) else pathlib.Path.home() / ".cache"
    return home / "hvd"


#: Spack's variable for the directory of the keyring.
KEYRING_VARIABLE = "SPACK_GNUPGHOME"


def keyring() -> pathlib.Path:
    """Return the directory of the keys that packages are signed with, and checked against."""
    return pathlib.Path(os.environ.get(KEYRING_VARIABLE) or state() / "gnupg").absolute()


def key(environment: str, engine: str) -> str:
    """Return the name of the files of an environment and engine: ``local-hvd-spack``."""
    return f"{environment}-{engine}"


def shorten(path: os.PathLike) -> str:
    """Return ``path`` as a person would type it: relative to the checkout if it is inside."""
    path = pathlib.Path(path)
    try:
        return str(path.relative_to(ROOT))
    except ValueError:
        return str(path)
