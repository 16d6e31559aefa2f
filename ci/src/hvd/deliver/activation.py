"""Activation of a built environment: in a shell without Spack, in a notebook, or by a module.

What ``spack env activate --sh`` prints cannot be undone without Spack, knows no site's modules
and network, and does not exist for the pip engine.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from hvd.core import templates
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.model import environment, site
from hvd.model.built import Built, Modification
from hvd.model.site import Site, Use

#: The variable that names the active environment, for ``./hvd doctor`` and for people.
MARK = "HVD_ACTIVE"
#: System directories, which must not come before others in a list.  Spack's is_system_path does
#: not know all of those below /usr.
_SYSTEM = re.compile(
    r"/|(/usr(/local)?)?(/(s?bin|bin64|include|man|share/(man|aclocal|pkgconfig)|lib(64)?(/pkgconfig)?))?"
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The modules to load and the variables to change, to activate an environment."""

    modules: Tuple[str, ...]  #: the site's, in the order in which to load them
    #: at most one for each variable, ``PATH`` last: ``set``, or ``prepend`` a list to the old
    #: value; one that ends in a colon keeps it where there is none, as MANPATH needs
    changes: Tuple[Modification, ...]
    comment: str  #: one line on what is activated, and for which jobs

    def applied(self, before: Mapping[str, str]) -> Dict[str, str]:
        """The environment ``before`` after activation."""
        after = dict(before)
        for change in self.changes:
            old = before.get(change.name)
            if change.kind == "prepend" and old:
                after[change.name] = f"{change.value.rstrip(':')}:{old}"
            else:
                after[change.name] = change.value
        return after


def plan(built: Built, nodes: int = 2, rdma: bool = False) -> Plan:
    """Plan the activation of ``built`` for jobs on ``nodes`` nodes."""
    machine, use = place(built)
    fabric = machine.variables(built.case, nodes, rdma) if machine else {}
    # a list with another separator than a colon replaces the shell's; what a package appends goes
    # behind what others prepend, and before the shell's own entries
    joined: Dict[Tuple[str, str], List[str]] = {}
    for each in lists(built.changes):
        entries = joined.setdefault((each.name, each.separator), [])
        entries.insert(0 if each.kind == "prepend" else len(entries), each.value)
    changes = {
        name: Modification("prepend" if separator == ":" else "set", name, separator.join(entries))
        for (name, separator), entries in joined.items()
    }
    # the shell's would name another Python's standard library; an empty one is none
    changes["PYTHONHOME"] = Modification("set", "PYTHONHOME", "")
    changes.update((change.name, change) for change in variables(built, fabric))
    if "PATH" not in changes:
        raise HvdError(f"{built.name} has no bin directory", f"build it again: {built.again}")
    changes["PATH"] = changes.pop("PATH")
    comment = f"{built.name}, for {nodes} node{'s' if nodes > 1 else ''}"
    return Plan(tuple(modules(built, use)), tuple(changes.values()), comment)


def place(built: Built) -> Tuple[Optional[Site], Optional[Use]]:
    """The site that it was built for and what it uses there; None and None for no site."""
    chosen = environment.load(built.environment)
    if not chosen.site:
        return None, None
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
    entries: Dict[Modification, None] = {}
    for change in changes:
        value = os.path.normpath(change.value) if os.path.isabs(change.value) else change.value
        if change.kind != "set" and not _SYSTEM.fullmatch(value):
            entry = dataclasses.replace(change, value=value)
            # of two equal entries the later one decides the place
            entries.pop(entry, None)
            entries[entry] = None
    found = sorted(entries, key=lambda entry: (entry.name, entry.kind, entry.separator))
    if any(change.name == "MANPATH" for change in found):
        # an empty entry stands for the system's manual pages
        found.append(Modification("append", "MANPATH", ""))
    return found


def variables(built: Built, fabric: Mapping[str, str]) -> List[Modification]:
    """The variables to set, sorted by name; ``fabric`` has those of the site's network."""
    values = {change.name: change.value for change in built.changes if change.kind == "set"}
    values[MARK] = built.name
    # a package in the user's home would hide the one that Horovod was built for
    values["PYTHONNOUSERSITE"] = "1"
    values.update(fabric)
    return [Modification("set", *each) for each in sorted(values.items())]


def write(plan: Plan, directory: pathlib.Path) -> pathlib.Path:
    """Write activate.sh, for sh, bash, dash, ksh and zsh, into ``directory``; return its path."""
    template = templates.environment().get_template("deliver/templates/activate.sh.j2")
    path = directory / "activate.sh"
    write_atomically(path, template.render(plan=plan, quote=shlex.quote).encode())
    return path
