"""A trace as tables for the terminal."""

from __future__ import annotations

from typing import List

import rich.box
import rich.markup
import rich.table

from hvd.report.text import duration, plain, plural
from hvd.timeline import totals
from hvd.timeline.trace import NEGOTIATE, Trace

#: The most operations in progress, and ranks, that are shown.
MOST = 10


def phases(trace: Trace) -> rich.table.Table:
    """Return the totals by phase, with shares of the trace and of the sum over all tensors."""
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
    """Return the ``most`` tensors that took longest."""
    table = _table("Slowest tensors", "Elements", right=("Summed", "of it", "Negotiated", "Times"))
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
    """Return a table of the ranks that others waited for; none if the trace names no ranks."""
    table = _table("Rank", right=("Last to be ready", "The first waited"))
    for rank in totals.ranks(trace)[:MOST]:
        table.add_row(str(rank.number), plural(rank.last, "time"), duration(rank.waited))
    return [table] if table.rows else []


def unfinished(trace: Trace) -> List[str]:
    """Return a line for each operation in progress at the end, the oldest first."""
    opened = sorted(trace.unfinished, key=lambda each: each.since)
    lines = []
    for each in opened[:MOST]:
        # for how long is unknown: the trace ends with its last event, not with the job
        phase = each.phases[-1]
        line = f"in progress at the end: {each.name}, {phase} since {duration(each.since)}"
        absent = totals.missing(trace, each)
        # without a mark of any rank the answer was cached, and nothing is known
        if phase.startswith(NEGOTIATE) and each.ready and absent:
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
