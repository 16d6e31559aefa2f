"""A trace as tables for the terminal."""

from __future__ import annotations

from typing import List

import rich.box
import rich.markup
import rich.table

from hvd.report.text import duration, plain, plural
from hvd.timeline import totals
from hvd.timeline.trace import NEGOTIATE, Trace

#: Operations in progress, and ranks, that are shown at most.
MOST = 10


def phases(trace: Trace) -> rich.table.Table:
    """Totals by phase, with their shares of the trace and of the sum over all tensors."""
    table = _table("Phase", "Kind", right=("Wall", "of it", "Summed", "of it", "Times"))
    found = totals.phases(trace)
    summed = sum(phase.tensors for phase in found)
    for phase in found:
        table.add_row(
            _text(phase.name),
            phase.kind,
            duration(phase.wall),
            _share(phase.wall, trace.seconds),
            duration(phase.tensors),
            _share(phase.tensors, summed),
            str(phase.entered),
        )
    return table


def tensors(trace: Trace, most: int) -> rich.table.Table:
    """The dearest tensors."""
    table = _table("Dearest tensors", "Elements", right=("Summed", "of it", "Negotiated", "Times"))
    found = totals.tensors(trace)
    summed = sum(tensor.seconds for tensor in found)
    for tensor in found[:most]:
        waited = sum(s for phase, s in tensor.phases.items() if phase.startswith(NEGOTIATE))
        table.add_row(
            _text(tensor.name),
            _text(trace.elements.get(tensor.name, "")),
            duration(tensor.seconds),
            _share(tensor.seconds, summed),
            duration(waited),
            str(tensor.operations),
        )
    return table


def ranks(trace: Trace) -> List[rich.table.Table]:
    """The ranks that others waited for; empty where the trace names none."""
    found = totals.ranks(trace)
    if not found:
        return []
    table = _table("Rank", right=("Last to be ready", "The first waited"))
    for rank in found[:MOST]:
        table.add_row(str(rank.number), plural(rank.last, "time"), duration(rank.waited))
    return [table]


def unfinished(trace: Trace) -> List[str]:
    """A line for each operation in progress at the end, the oldest first."""
    opened = sorted(trace.unfinished, key=lambda each: each.start)
    lines = []
    for each in opened[:MOST]:
        line = f"in progress at the end: {each.tensor}, {each.phase}"
        # how long cannot be told: the trace ends with its last event, not with the job
        line += f" since {duration(each.start)}"
        absent = totals.missing(trace, each) if each.phase.startswith(NEGOTIATE) else []
        # without a mark of any rank the answer was cached, and nothing is known
        if each.ready and absent:
            names = ", ".join(map(str, absent[:MOST])) + (" ..." if len(absent) > MOST else "")
            line += f"; not ready: rank {names}"
        lines.append(plain(line))
    if len(opened) > MOST:
        lines.append(f"and {plural(len(opened) - MOST, 'other')} in progress")
    return lines


def _table(*left: str, right: tuple) -> rich.table.Table:
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for title in left:
        table.add_column(title, overflow="fold")
    for title in right:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _text(value: str) -> str:
    return rich.markup.escape(plain(value))


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "–"
