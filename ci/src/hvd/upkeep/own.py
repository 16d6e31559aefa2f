"""Newer releases of what ``./hvd`` itself is run with.

The pinned files have a checksum for each file of each release, and uv makes them.
"""

from __future__ import annotations

import platform
import re
from typing import Callable, Dict, List

from packaging.version import Version

from hvd.core import paths
from hvd.upkeep import newest
from hvd.upkeep.newest import Releases
from hvd.upkeep.proposal import Proposal

FILE = paths.ROOT / "ci" / "requirements.txt"
#: A pin, its checksums, and the comment of uv that says what asks for it.
_PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[\w.]+).*\n(?:    .*\n)+", re.MULTILINE)


def newer(releases: Callable[[str], Releases]) -> List[Proposal]:
    """Return one proposal for what ``ci/pyproject.toml`` asks for; empty if all are the newest.

    Args:
        releases: looks a distribution up.
    """
    pinned: Dict[str, Version] = {}
    for match in _PIN.finditer(FILE.read_text()):
        if "hvd (pyproject.toml)" in match[0]:
            version = Version(match["version"])
            # older ones are for older Pythons
            pinned[match["name"]] = max(version, pinned.get(match["name"], version))
    python = ".".join(platform.python_version_tuple()[:2])
    later = {}
    for name, version in pinned.items():
        best = newest.newest(releases(name), [python], platform.machine())
        if best and best > version:
            later[name] = best
    if not later:
        return []
    return [
        Proposal(
            str(FILE.relative_to(paths.ROOT)),
            ", ".join(f"{name} {pinned[name]}" for name in later),
            ", ".join(f"{name} {version}" for name, version in later.items()),
            changes=(),
            cells=(),
            note="Make the files again with the commands in ci/pyproject.toml and --upgrade, as "
            "far as the bounds there allow; ./hvd test tells whether it works.",
        )
    ]
