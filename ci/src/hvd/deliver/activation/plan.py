"""What activation changes in a shell's environment."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Mapping, Optional, Tuple

from hvd.core.errors import HvdError
from hvd.deliver.activation import parts
from hvd.model.built import Built


@dataclasses.dataclass(frozen=True)
class Change:
    """One variable and what becomes of it.

    Args:
        value: its new value; None to take the variable away.
        prepend: whether ``value``, directories between colons, goes in front of what is there.
            One that ends in a colon keeps that where nothing is, as MANPATH wants it.
    """

    name: str
    value: Optional[str]
    prepend: bool = False

    def apply(self, before: Optional[str]) -> Optional[str]:
        """The variable's value after the change; None where it is not set."""
        if self.value is None or not self.prepend:
            return self.value
        return f"{self.value.rstrip(':')}:{before}" if before else self.value


@dataclasses.dataclass(frozen=True)
class Plan:
    """What activates an environment: modules to load first, then variables to change.

    Args:
        name: of the environment and its engine.
        modules: those of the site, in the order in which they are loaded.
        changes: at most one for each variable, ``PATH`` the last.
        comment: whom and what it is for, in a line.
    """

    name: str
    modules: Tuple[str, ...]
    changes: Tuple[Change, ...]
    comment: str

    def applied(self, before: Mapping[str, str]) -> Dict[str, str]:
        """The environment ``before`` as it is after activation."""
        after = dict(before)
        for change in self.changes:
            value = change.apply(before.get(change.name))
            if value is None:
                after.pop(change.name, None)
            else:
                after[change.name] = value
        return after


def make(built: Built, nodes: int = 2, rdma: bool = False) -> Plan:
    """What activates ``built`` for jobs on ``nodes`` nodes.

    Raises:
        HvdError: a value cannot be a variable's, or its programs would not be on ``PATH``.
    """
    machine, use = parts.place(built) or (None, None)
    fabric: Dict[str, str] = {}
    where = ""
    if machine:
        fabric = machine.variables(built.case, nodes, rdma)
        where = f" on {machine.name}, {nodes} node{'s' if nodes > 1 else ''}"
    changes = {change.name: change for change in _lists(built)}
    # another Python's standard library
    changes["PYTHONHOME"] = Change("PYTHONHOME", None)
    for name, value in parts.variables(built, fabric).items():
        changes[name] = Change(name, value)
    for change in changes.values():
        if "\0" in (change.value or ""):
            raise HvdError(f"{built.name}: {change.name} has a NUL in it", _again(built))
    if "PATH" not in changes:
        raise HvdError(f"{built.name}: it adds nothing to PATH", _again(built))
    path = changes.pop("PATH")
    comment = f"{built.environment}, built by {built.engine}{where}"
    modules = parts.modules(built, use)
    return Plan(built.name, tuple(modules), (*changes.values(), path), comment)


def _lists(built: Built) -> List[Change]:
    """One change for each list.

    What a package appends comes after what others prepend, and before what the shell has.  A
    list of other things than directories takes the place of the shell's.
    """
    entries: Dict[Tuple[str, str], List[str]] = {}
    for change in parts.lists(built.changes):
        values = entries.setdefault((change.name, change.separator), [])
        values.insert(0 if change.kind == "prepend" else len(values), change.value)
    return [
        Change(name, separator.join(values), prepend=separator == ":")
        for (name, separator), values in entries.items()
    ]


def _again(built: Built) -> str:
    return f"build it again: {built.again}"
