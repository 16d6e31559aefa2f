"""A trace as a picture: the phases of the tensors over time, and the tensors that took longest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List

from hvd.report import canvas
from hvd.report.text import duration
from hvd.timeline import totals
from hvd.timeline.trace import Span, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The formats, as file names end.
FORMATS = (".png", ".svg")
#: Phases with a colour of their own; the others share a grey.
_MOST_PHASES = len(canvas.COLOURS)
_OTHERS, _GREY = "others", "#999999"
_BINS = 200


def draw(trace: Trace, title: str, format: str, most: int) -> bytes:
    """Return the ``png`` or ``svg`` of a trace that has spans, with ``most`` tensors."""
    slowest = totals.tensors(trace)[:most]
    ordered = sorted(totals.phases(trace), key=lambda phase: -phase.tensors)
    colours = {p.name: c for p, c in zip(ordered[:_MOST_PHASES], canvas.COLOURS) if p.tensors}
    if len(ordered) > _MOST_PHASES:
        colours[_OTHERS] = _GREY
    with canvas.style():
        figure = canvas.figure(480 + 26 * len(slowest))
        above, below = figure.subplots(2, height_ratios=[10, 2 + len(slowest)])
        _over_time(above, trace, colours)
        _by_tensor(below, slowest, colours)
        # the title is the user's file name, which is not mathematics
        figure.suptitle(canvas.clipped(title, 80))
        figure.legend(
            *above.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
        )
        return canvas.encoded(figure, format)


def _over_time(axes: Axes, trace: Trace, colours: Dict[str, str]) -> None:
    """Draw the mean number of tensors in each phase over time, stacked."""
    import numpy as np

    edges = np.linspace(trace.start, trace.end, _BINS + 1)
    by_phase: Dict[str, List[Span]] = {name: [] for name in colours}
    for span in trace.spans:
        by_phase[span.phase if span.phase in colours else _OTHERS].append(span)
    axes.stackplot(
        (edges[:-1] + edges[1:]) / 2,
        [totals.in_flight(spans, edges) for spans in by_phase.values()],
        labels=list(by_phase),
        colors=list(colours.values()),
        linewidth=0,
    )
    axes.set_xlim(trace.start, trace.end)
    axes.set_xlabel("Time since Horovod began (s)")
    axes.set_ylabel("Tensors in each phase")
    axes.spines[["top", "right"]].set_visible(False)


def _by_tensor(axes: Axes, slowest: List[totals.Tensor], colours: Dict[str, str]) -> None:
    """Draw a bar for each tensor, made up of its phases."""
    for row, tensor in enumerate(slowest):
        shares = dict.fromkeys(colours, 0.0)
        for phase, seconds in tensor.phases.items():
            shares[phase if phase in colours else _OTHERS] += seconds
        left = 0.0
        for phase, seconds in shares.items():
            bar = axes.barh(row, seconds, left=left, color=colours[phase])
            left += seconds
        axes.bar_label(bar, [duration(left)], padding=4, fontsize=10)
    canvas.name_bars(axes, [tensor.name for tensor in slowest], margin=0.15)
    axes.set_xlabel("Time of the slowest tensors, all their operations (s)")
