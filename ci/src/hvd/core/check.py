"""A check: what was looked at, how it was found, and what to do about it."""

from __future__ import annotations

import dataclasses
import enum
from typing import Iterable

import rich.text


class State(str, enum.Enum):
    """How a check ended; what cannot be looked at here is not known, which is not ok."""

    ok = "ok"
    warn = "warn"
    fail = "fail"
    unknown = "not known"


_COLOURS = {
    State.ok: "green",
    State.warn: "yellow",
    State.fail: "bold red",
    State.unknown: "cyan",
}


@dataclasses.dataclass
class Check:
    """One thing that was checked.

    Args:
        detail: what was found; if it failed, one line per failure, the cause first.
        remedy: what to do; empty if it is ok.
    """

    name: str
    state: State = State.ok
    detail: str = ""
    remedy: str = ""


def show(checks: Iterable[Check]) -> rich.text.Text:
    """Return the checks for people: name, state and detail, and the remedy below."""
    checks = list(checks)
    width = max((len(each.name) for each in checks), default=0)
    indent = " " * (width + 13)
    text = rich.text.Text()
    for each in checks:
        text.append(f"{each.name:<{width}}  ")
        text.append(f"{each.state.value:<9}", _COLOURS[each.state])
        text.append(f"  {each.detail}".replace("\n", f"\n{indent}") + "\n")
        if each.remedy and each.state is not State.ok:
            text.append(f"{indent}hint: {each.remedy}\n", "dim")
    return text
