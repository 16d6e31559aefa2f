"""The modules, lists and variables that make a built environment usable.

Shared by ``./hvd activate``, ``./hvd kernel`` and ``./hvd publish``.
"""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from hvd.model import environment, site
from hvd.model.built import Built, Modification
from hvd.model.site import Site, Use

#: The variable that names the active environment, for ``./hvd doctor`` and for people.
MARK = "HVD_ACTIVE"
#: System directories, which must not come before others in a list.  Spack's is_system_path does
#: not know all of those below /usr.
_LEAVES = (
    "", "bin", "bin64", "sbin", "include", "lib", "lib64", "man", "share/man", "share/aclocal",
    "share/pkgconfig", "lib/pkgconfig", "lib64/pkgconfig",
)  # fmt: skip
_SYSTEM = {
    os.path.normpath(f"{root}/{leaf}") for root in ("", "/usr", "/usr/local") for leaf in _LEAVES
}


def place(built: Built) -> Optional[Tuple[Site, Use]]:
    """The site that it was built for and what it uses there; None if it is for no site."""
    chosen = environment.load(built.environment)
    if not chosen.site:
        return None
    base = environment.base(chosen)
    machine = site.of(base)
    return machine, machine.environments[base]


def modules(built: Built, use: Optional[Use]) -> List[str]:
    """The modules to load: the site's, then those of externals that the site's do not replace."""
    loads = [word for load in use.run for word in load] if use else []
    names = {word.partition("/")[0] for word in loads}
    return loads + [each for each in built.modules if each.partition("/")[0] not in names]


def lists(changes: Sequence[Modification]) -> List[Modification]:
    """One change for each entry of a list; made in this order, the right entry ends up first."""
    entries: Dict[Tuple[str, str, str], List[str]] = {}
    for change in changes:
        value = os.path.normpath(change.value) if os.path.isabs(change.value) else change.value
        if change.kind == "set" or value in _SYSTEM:
            continue
        values = entries.setdefault((change.name, change.kind, change.separator), [])
        # of two equal entries the later one decides the place
        if value in values:
            values.remove(value)
        values.append(value)
    found = [
        Modification(kind, name, value, separator)
        for (name, kind, separator), values in sorted(entries.items())
        for value in values
    ]
    if any(change.name == "MANPATH" for change in found):
        # an empty entry stands for the system's manual pages
        found.append(Modification("append", "MANPATH", ""))
    return found


def variables(built: Built, fabric: Mapping[str, str]) -> Dict[str, str]:
    """The variables to set, sorted by name; ``fabric`` has those of the site's network."""
    values = {change.name: change.value for change in built.changes if change.kind == "set"}
    values[MARK] = built.name
    # a package in the user's home would hide the one that Horovod was built for
    values["PYTHONNOUSERSITE"] = "1"
    values.update(fabric)
    return dict(sorted(values.items()))
