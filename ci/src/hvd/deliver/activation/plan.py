"""The changes that activation makes to a shell's environment."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Mapping, Optional, Tuple

from hvd.core.errors import HvdError
from hvd.deliver.activation import parts
from hvd.model.built import Built


@dataclasses.dataclass(frozen=True)
class VariableChange:
    """The change of one variable.

    Args:
        value: the new value; None to unset the variable.
        prepend: put ``value``, directories separated by colons, in front of the old value.  One
            that ends in a colon keeps it where there is no old value, as MANPATH needs.
    """

    name: str
    value: Optional[str]
    prepend: bool = False

    @property
    def front(self) -> str:
        """The part of ``value`` that goes in front of a colon and the old value."""
        return (self.value or "").rstrip(":")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The modules to load and the variables to change, to activate an environment.

    Args:
        modules: the site's modules, in the order in which to load them.
        changes: at most one for each variable, ``PATH`` last.
        comment: one line on what is activated, and for which jobs.
    """

    modules: Tuple[str, ...]
    changes: Tuple[VariableChange, ...]
    comment: str

    def applied(self, before: Mapping[str, str]) -> Dict[str, str]:
        """The environment ``before`` after activation."""
        after = dict(before)
        for change in self.changes:
            old = before.get(change.name)
            if change.value is None:
                after.pop(change.name, None)
            elif change.prepend and old:
                after[change.name] = f"{change.front}:{old}"
            else:
                after[change.name] = change.value
        return after


def make(built: Built, nodes: int = 2, rdma: bool = False) -> Plan:
    """Plan the activation of ``built`` for jobs on ``nodes`` nodes.

    Raises:
        HvdError: a value contains a NUL, or nothing is added to ``PATH``.
    """
    machine, use = parts.place(built) or (None, None)
    comment = f"{built.environment}, built by {built.engine}"
    fabric: Dict[str, str] = {}
    if machine:
        fabric = machine.variables(built.case, nodes, rdma)
        comment += f" on {machine.name}, {nodes} node{'s' if nodes > 1 else ''}"
    changes = {change.name: change for change in _lists(built)}
    # it would name another Python's standard library
    changes["PYTHONHOME"] = VariableChange("PYTHONHOME", None)
    for name, value in parts.variables(built, fabric).items():
        changes[name] = VariableChange(name, value)
    for change in changes.values():
        if "\0" in (change.value or ""):
            raise HvdError(f"{built.name}: {change.name} has a NUL in it", _again(built))
    if "PATH" not in changes:
        raise HvdError(f"{built.name}: it adds nothing to PATH", _again(built))
    changes["PATH"] = changes.pop("PATH")
    return Plan(tuple(parts.modules(built, use)), tuple(changes.values()), comment)


def _lists(built: Built) -> List[VariableChange]:
    """One change for each list.

    What a package appends goes behind what others prepend, and before the shell's own entries.
    A list with another separator than a colon replaces the shell's.
    """
    entries: Dict[Tuple[str, str], List[str]] = {}
    for change in parts.lists(built.changes):
        values = entries.setdefault((change.name, change.separator), [])
        values.insert(0 if change.kind == "prepend" else len(values), change.value)
    return [
        VariableChange(name, separator.join(values), prepend=separator == ":")
        for (name, separator), values in entries.items()
    ]


def _again(built: Built) -> str:
    return f"build it again: {built.again}"
