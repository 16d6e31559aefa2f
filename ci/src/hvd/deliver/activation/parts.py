"""What a shell or a module does to use what was built: modules, lists, variables.

The one answer for ``./hvd activate``, ``./hvd kernel`` and ``./hvd publish``.
"""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from hvd.model import environment, site
from hvd.model.built import Built, Change
from hvd.model.site import Site, Use

#: Names the environment that is active, for ``./hvd doctor`` and for people.
MARK = "HVD_ACTIVE"
#: Directories that every shell has on its lists, which must not come before those of others;
#: Spack's is_system_path leaves out some of what it finds below /usr.
_LEAVES = (
    "", "bin", "bin64", "sbin", "include", "lib", "lib64", "man", "share/man", "share/aclocal",
    "share/pkgconfig", "lib/pkgconfig", "lib64/pkgconfig",
)  # fmt: skip
_SYSTEM = {
    os.path.normpath(f"{root}/{leaf}") for root in ("", "/usr", "/usr/local") for leaf in _LEAVES
}
#: Lists whose empty entry stands for what the system has.
_WITH_SYSTEM = ("MANPATH",)


def place(built: Built) -> Optional[Tuple[Site, Use]]:
    """The site that it was built for, and what it uses of it; None for this machine."""
    chosen = environment.load(built.environment)
    if not chosen.site:
        return None
    base = environment.base(chosen)
    machine = site.of(base)
    return machine, machine.environments[base]


def modules(built: Built, use: Optional[Use]) -> List[str]:
    """The site's modules; and those of externals, unless the site has another version to run."""
    loads = [word for load in use.run for word in load] if use else []
    names = {word.partition("/")[0] for word in loads}
    return loads + [each for each in built.modules if each.partition("/")[0] not in names]


def lists(changes: Sequence[Change]) -> List[Change]:
    """One change for each entry of a list, in an order that leaves the right one first."""
    entries: Dict[Tuple[str, str, str], List[str]] = {}
    for change in changes:
        value = os.path.normpath(change.value) if os.path.isabs(change.value) else change.value
        if change.kind == "set" or value in _SYSTEM:
            continue
        values = entries.setdefault((change.name, change.kind, change.separator), [])
        # the later of two is the one that counts: it comes first, or last
        if value in values:
            values.remove(value)
        values.append(value)
    found = [
        Change(kind, name, value, separator)
        for (name, kind, separator), values in sorted(entries.items())
        for value in values
    ]
    ends = {change.name for change in found if change.name in _WITH_SYSTEM}
    return found + [Change("append", name, "") for name in sorted(ends)]


def variables(built: Built, fabric: Mapping[str, str]) -> Dict[str, str]:
    """What is set, the site's ``fabric`` included, by name in alphabetical order."""
    values = {change.name: change.value for change in built.changes if change.kind == "set"}
    values[MARK] = built.name
    # a package of the user's own would come before the one that Horovod was built for
    values["PYTHONNOUSERSITE"] = "1"
    values.update(fabric)
    return dict(sorted(values.items()))
