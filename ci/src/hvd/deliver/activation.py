"""Activation of a built environment: in a shell without Spack, in a notebook, or by a module.

``spack env activate --sh`` is not used: what it prints cannot be undone without Spack, knows no
site's modules and network, and does not exist for the pip engine.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.deliver import template
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
#: Characters that no csh interprets.
_PLAIN = re.compile(r"[\w./:+,@-]+", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The modules to load and the variables to change, to activate an environment."""

    modules: Tuple[str, ...]  #: the site's, in the order in which to load them
    #: at most one for each variable, ``PATH`` last: ``set``, ``unset``, or ``prepend`` a list to
    #: the old value; one that ends in a colon keeps it where there is none, as MANPATH needs
    changes: Tuple[Modification, ...]
    comment: str  #: one line on what is activated, and for which jobs

    def applied(self, before: Mapping[str, str]) -> Dict[str, str]:
        """The environment ``before`` after activation."""
        after = dict(before)
        for change in self.changes:
            old = before.get(change.name)
            if change.kind == "unset":
                after.pop(change.name, None)
            elif change.kind == "prepend" and old:
                after[change.name] = f"{change.value.rstrip(':')}:{old}"
            else:
                after[change.name] = change.value
        return after


def plan(built: Built, nodes: int = 2, rdma: bool = False) -> Plan:
    """Plan the activation of ``built`` for jobs on ``nodes`` nodes.

    Raises:
        HvdError: a value contains a NUL, or nothing is added to ``PATH``.
    """
    machine, use = place(built)
    comment = f"{built.environment}, built by {built.engine}"
    fabric: Dict[str, str] = {}
    if machine:
        fabric = machine.variables(built.case, nodes, rdma)
        comment += f" on {machine.name}, {nodes} node{'s' if nodes > 1 else ''}"
    changes = {change.name: change for change in _joined(lists(built.changes))}
    # it would name another Python's standard library
    changes["PYTHONHOME"] = Modification("unset", "PYTHONHOME", "")
    changes.update((change.name, change) for change in variables(built, fabric))
    again = f"build it again: {built.again}"
    for change in changes.values():
        if "\0" in change.value:
            raise HvdError(f"{built.name}: {change.name} has a NUL in it", again)
    if "PATH" not in changes:
        raise HvdError(f"{built.name}: it adds nothing to PATH", again)
    changes["PATH"] = changes.pop("PATH")
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
        if change.kind != "set" and value not in _SYSTEM:
            entry = dataclasses.replace(change, value=value)
            # of two equal entries the later one decides the place
            entries.pop(entry, None)
            entries[entry] = None
    found = sorted(entries, key=lambda entry: (entry.name, entry.kind, entry.separator))
    if any(change.name == "MANPATH" for change in found):
        # an empty entry stands for the system's manual pages
        found.append(Modification("append", "MANPATH", ""))
    return found


def _joined(entries: Sequence[Modification]) -> List[Modification]:
    """One change for each list.

    What a package appends goes behind what others prepend, and before the shell's own entries.
    A list with another separator than a colon replaces the shell's.
    """
    values: Dict[Tuple[str, str], List[str]] = {}
    for each in entries:
        known = values.setdefault((each.name, each.separator), [])
        known.insert(0 if each.kind == "prepend" else len(known), each.value)
    return [
        Modification("prepend" if separator == ":" else "set", name, separator.join(words))
        for (name, separator), words in values.items()
    ]


def variables(built: Built, fabric: Mapping[str, str]) -> List[Modification]:
    """The variables to set, sorted by name; ``fabric`` has those of the site's network."""
    values = {change.name: change.value for change in built.changes if change.kind == "set"}
    values[MARK] = built.name
    # a package in the user's home would hide the one that Horovod was built for
    values["PYTHONNOUSERSITE"] = "1"
    values.update(fabric)
    return [Modification("set", *each) for each in sorted(values.items())]


def _csh(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    # a ! and a newline need a backslash even between quotes
    text = text.replace("'", "'\"'\"'").replace("!", "\\!").replace("\n", "\\\n")
    return f"'{text}'"


def _fish(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


#: The scripts, and how their shells quote a word: sh, dash, bash, ksh, zsh; csh, tcsh; fish.
#: Each script keeps the former values in variables of the shell; ``hvd_deactivate`` restores them.
FILES: Dict[str, Callable[[str], str]] = {
    "activate.sh": shlex.quote,
    "activate.csh": _csh,
    "activate.fish": _fish,
}


def render(plan: Plan, file: str) -> str:
    """The script called ``file``, a key of `FILES`."""
    return template.render(f"deliver/templates/{file}.j2", FILES[file], plan=plan)


def write(plan: Plan, directory: pathlib.Path) -> None:
    """Write the scripts for all shells into ``directory``.

    Raises:
        HvdError: one cannot be written.
    """
    for file in FILES:
        write_atomically(directory / file, render(plan, file).encode())
