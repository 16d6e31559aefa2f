"""The pictures of ``docs/performance.md``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hvd.bench import allreduce, builds, solves
from hvd.bench.result import Benchmark
from hvd.core import stamp
from hvd.report import canvas
from hvd.report.canvas import COLOURS, MARKERS
from hvd.report.text import duration, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The labelled sizes of allreduces, in bytes per rank.
_TICKS = (4, 4 * 2**10, 4 * 2**20, 256 * 2**20)


def draw(part: Benchmark) -> bytes:
    """Return an SVG of what ``part`` measured."""
    drawings = {"builds": _builds, "solves": _solves, "allreduce": _allreduce}
    with canvas.style():
        return canvas.encoded(drawings[part.name](part), "svg", digest(part))


def digest(part: Benchmark) -> str:
    """Return a digest of all that the picture of ``part`` shows."""
    return stamp.of([dataclasses.asdict(row) for row in part.rows])


def _builds(part: Benchmark) -> Figure:
    figure = canvas.figure(110 + 34 * len(part.rows))
    axes = figure.add_subplot()
    for place, row in enumerate(part.rows):
        ends = [[row.median - min(row.seconds)], [max(row.seconds) - row.median]]
        bar = axes.barh(place, row.median, xerr=ends, color=COLOURS[place % len(COLOURS)])
        ratio = part.ratio(row.name, builds.REFERENCE, subject=row.subject)
        axes.bar_label(bar, [f"{duration(row.median)}, {ratio:.2f}"], padding=6, size=10)
    canvas.name_bars(axes, [row.name for row in part.rows], margin=0.25)
    axes.set_xlabel("Wall time (s), and the ratio to plain pip")
    figure.suptitle("A build of py-horovod")
    return figure


def _solves(part: Benchmark) -> Figure:
    subjects = [row.subject for row in part.rows if row.name == solves.OURS]
    figure = canvas.figure(220 + 34 * len(subjects))
    axes, growth = figure.subplots(1, 2, width_ratios=[2, 1])
    labels = {solves.OURS: "hvd", solves.BUILTIN: "Spack's own recipe"}
    for number, (name, label) in enumerate(labels.items()):
        rows = [part.find(name, subject) for subject in subjects]
        times = [row.median if row and row.seconds else 0 for row in rows]
        places = [place + 0.4 * number - 0.2 for place in range(len(subjects))]
        bar = axes.barh(places, times, 0.38, color=COLOURS[number], label=label)
        texts = [duration(time) if time else "no solution" for time in times]
        axes.bar_label(bar, texts, padding=4, size=8)
    canvas.name_bars(axes, subjects, margin=0.25)
    axes.set_xlabel("Time to concretize (s)")
    together = [row for row in part.rows if row.name == solves.TOGETHER]
    counts = [int(row.subject) for row in together]
    growth.plot(counts, [row.median for row in together], marker="o", color=COLOURS[0])
    growth.set_xticks(counts)
    growth.set_xlabel("Environments at a time")
    growth.set_ylabel("Time (s)")
    growth.set_ylim(bottom=0)
    growth.grid(color="#dddddd")
    # below the axes, in which any place may have a bar
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle("Concretization")
    return figure


def _allreduce(part: Benchmark) -> Figure:
    counts = sorted({row.ranks for row in part.rows})
    lines = -(-len(counts) // 2)
    figure = canvas.figure(330 * lines + 60)
    panels = figure.subplots(lines, 2, sharex=True, sharey=True, squeeze=False)
    for panel, ranks in zip(panels.flat, counts):
        _panel(panel, part, ranks)
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


def _panel(axes: Axes, part: Benchmark, ranks: int) -> None:
    """Draw the times of every method on ``ranks`` ranks over the message size."""
    names = [name for key, peer in allreduce.PEERS.items() for name in (allreduce.OURS[key], peer)]
    for name, colour, marker in zip(names, COLOURS, MARKERS):
        rows = [r for r in part.rows if (r.name, r.ranks) == (name, ranks) and r.seconds]
        sizes = [row.bytes for row in rows]
        axes.plot(
            sizes,
            [row.median for row in rows],
            label=name,
            color=colour,
            marker=marker,
            markersize=4,
            linestyle="--" if name in allreduce.PEERS.values() else "-",
        )
        low, high = ([end(row.seconds) for row in rows] for end in (min, max))
        axes.fill_between(sizes, low, high, color=colour, alpha=0.15)
    axes.set_title(plural(ranks, "rank"), size=11)
    canvas.over_size(axes, _TICKS)
