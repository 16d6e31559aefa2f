"""The pictures of ``docs/performance.md``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, List

from hvd.bench import allreduce, builds, solves
from hvd.bench.result import Part, Row
from hvd.core import stamp
from hvd.report import canvas
from hvd.report.canvas import COLOURS
from hvd.report.text import duration, size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = "osD^"


def draw(part: Part) -> bytes:
    """An SVG of what ``part`` measured."""
    drawings = {"builds": _builds, "solves": _solves, "allreduce": _allreduce}
    with canvas.style():
        return canvas.encoded(drawings[part.name](part), "svg", digest(part))


def digest(part: Part) -> str:
    """Of all that the picture of ``part`` shows."""
    return stamp.of([dataclasses.asdict(row) for row in part.rows])


def _builds(part: Part) -> Figure:
    figure = canvas.figure(110 + 34 * len(part.rows))
    axes = figure.add_subplot()
    for place, row in enumerate(part.rows):
        bar = axes.barh(place, row.median, xerr=_ends(row), color=COLOURS[place % len(COLOURS)])
        ratio = part.ratio(row.name, builds.REFERENCE, subject=row.subject)
        axes.bar_label(bar, [f"{duration(row.median)}, {ratio:.2f}"], padding=6, size=10)
    axes.set_yticks(range(len(part.rows)), [row.name for row in part.rows])
    axes.invert_yaxis()
    axes.margins(x=0.25)  # room for the label of the longest
    axes.set_xlabel("Wall time (s), and the ratio to plain pip")
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("A build of py-horovod")
    return figure


def _ends(row: Row) -> List[List[float]]:
    """How far the least and the most are from the median, as matplotlib's error bars are."""
    return [[row.median - min(row.seconds)], [max(row.seconds) - row.median]]


def _solves(part: Part) -> Figure:
    subjects = [row.subject for row in part.rows if row.name == solves.OURS]
    together = [row for row in part.rows if row.name == solves.TOGETHER]
    figure = canvas.figure(220 + 34 * len(subjects))
    axes, growth = figure.subplots(1, 2, width_ratios=[2, 1])
    for number, (name, label) in enumerate(
        {solves.OURS: "hvd", solves.BUILTIN: "Spack's own recipe"}.items()
    ):
        found = [part.find(name, subject) for subject in subjects]
        heights = [row.median if row else 0 for row in found]
        places = [place + 0.4 * number - 0.2 for place in range(len(subjects))]
        bar = axes.barh(places, heights, 0.38, color=COLOURS[number], label=label)
        texts = [duration(row.median) if row else "no solution" for row in found]
        axes.bar_label(bar, texts, padding=4, size=8)
    axes.set_yticks(range(len(subjects)), subjects)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set_xlabel("Time to concretize (s)")
    # below: any place in it may have a bar's time
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    counts = [int(row.subject) for row in together]
    growth.plot(counts, [row.median for row in together], marker="o", color=COLOURS[0])
    growth.set_xticks(counts)
    growth.set_xlabel("Environments at a time")
    growth.set_ylabel("Time (s)")
    growth.set_ylim(bottom=0)
    growth.grid(color="#dddddd")
    figure.suptitle("Concretization")
    return figure


def _allreduce(part: Part) -> Figure:
    counts = sorted({row.ranks for row in part.rows})
    names = [name for key, peer in allreduce.PEERS.items() for name in (allreduce.OURS[key], peer)]
    figure = canvas.figure(330 * -(-len(counts) // 2) + 60)
    panels = figure.subplots(-(-len(counts) // 2), 2, sharex=True, sharey=True, squeeze=False)
    for panel, ranks in zip(panels.flat, counts):
        for place, name in enumerate(names):
            rows = [r for r in part.rows if (r.name, r.ranks) == (name, ranks) and r.seconds]
            panel.plot(
                [row.bytes for row in rows],
                [row.median for row in rows],
                label=name,
                color=COLOURS[place % len(COLOURS)],
                marker=_MARKERS[place % len(_MARKERS)],
                markersize=4,
                linestyle="--" if name in allreduce.PEERS.values() else "-",
            )
            low, high = ([end(row.seconds) for row in rows] for end in (min, max))
            colour = COLOURS[place % len(COLOURS)]
            panel.fill_between([row.bytes for row in rows], low, high, color=colour, alpha=0.15)
        panel.set_title(f"{ranks} rank{'s' * (ranks > 1)}", size=11)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        ticks = [4, 4 * 2**10, 4 * 2**20, 256 * 2**20]
        panel.set_xticks(ticks, [size(tick) for tick in ticks])
        panel.minorticks_off()
        panel.grid(color="#dddddd")
    for unused in panels.flat[len(counts) :]:
        unused.set_visible(False)
    for panel in panels[:, 0]:
        panel.set_ylabel("Time (s)")
    for panel in panels[-1]:
        panel.set_xlabel("Bytes per rank")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle("Sum of float32 over the ranks of one machine: median, least and most")
    return figure
