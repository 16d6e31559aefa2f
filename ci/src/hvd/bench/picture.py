"""The pictures of ``docs/performance.md``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hvd.bench import builds, solves, tables
from hvd.bench.collectives import ALLREDUCE, OURS, PEERS, RELEASED
from hvd.bench.result import Benchmark, Collective, Collectives
from hvd.core import stamp
from hvd.report import canvas
from hvd.report.canvas import COLOURS, MARKERS
from hvd.report.text import duration, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The labelled sizes of allreduces, in bytes per rank.
_TICKS = (4, 4 * 2**10, 4 * 2**20, 256 * 2**20)


def draw(part: Benchmark) -> bytes:
    """Return an SVG of what ``part`` measured."""
    drawings = {"builds": _builds, "solves": _solves, "collectives": _collectives}
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
    canvas.name_bars(axes, [f"{row.name}, {row.subject}" for row in part.rows], margin=0.25)
    axes.set_xlabel("Wall time (s), and the ratio to plain pip")
    figure.suptitle("A build of py-horovod")
    return figure


def _solves(part: Benchmark) -> Figure:
    subjects = [row.subject for row in part.rows if row.name == solves.OURS]
    figure = canvas.figure(220 + 34 * len(subjects))
    axes, growth = figure.subplots(1, 2, width_ratios=[2, 1])
    labels = {solves.OURS: "hvd", solves.BUILTIN: "Spack's own recipe"}
    for number, (name, label) in enumerate(labels.items()):
        rows = [part.find(name, subject=subject) for subject in subjects]
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


def _collectives(part: Collectives) -> Figure:
    """Times and bus bandwidths of allreduces on the least ranks, by controller."""
    ranks = min(row.ranks for row in part.rows)
    figure = canvas.figure(720)
    panels = figure.subplots(2, 2, sharex=True, sharey="row", squeeze=False)
    for times, speeds, controller in zip(*panels, OURS):
        names = OURS[controller], RELEASED[controller], PEERS[controller]
        for name, colour, marker in zip(names, COLOURS, MARKERS):
            rows = [r for r in part.rows if (r.name, r.ranks) == (name, ranks) and _sum(r)]
            sizes = [row.bytes for row in rows]
            look = {"label": name.split(", ")[-1], "color": colour, "marker": marker}
            look.update(markersize=4, linestyle="-" if name == names[0] else "--")
            times.plot(sizes, [row.median for row in rows], **look)
            ends = [row.minimum for row in rows], [row.p95 for row in rows]
            times.fill_between(sizes, *ends, color=colour, alpha=0.15)
            speeds.plot(sizes, [row.bus_bandwidth / 1e9 for row in rows], **look)
        handles, labels = times.get_legend_handles_labels()
        labels[:1] = ["Horovod"] * bool(labels)
        times.legend(handles, labels, frameon=False, fontsize=9)
        times.set_title(f"Over {tables.CONTROLLERS[controller]}", size=11)
        for axes in (times, speeds):
            canvas.over_size(axes, _TICKS)
        speeds.set_xlabel("Size")
    panels[0][0].set_ylabel("Time (s)")
    panels[1][0].set_ylabel("Bus bandwidth (GB/s)")
    figure.suptitle(
        f"Sum of float32 in place, {plural(ranks, 'rank')}: median, from the minimum to 95 %"
    )
    return figure


def _sum(row: Collective) -> bool:
    return (row.operation, row.dtype, row.in_place) == tuple(ALLREDUCE.values())
