"""The pictures of a report: bandwidth over message size, and wall time by step."""

from __future__ import annotations

from typing import Optional

from hvd.report import canvas, results
from hvd.report.canvas import COLOURS, MARKERS
from hvd.report.run_report import RunReport
from hvd.report.text import duration, plural

#: Pixels of the height of `bandwidth`.
HEIGHT = 500
#: The most steps that `timings` shows.
MOST_STEPS = 15
#: The most message sizes whose labels do not overlap.
_MOST_SIZES = 9


def bandwidth(report: RunReport) -> Optional[bytes]:
    """Return a PNG of bus bandwidth over message size; None if there is nothing to draw."""
    series = results.bandwidth(report.checks)
    if not series:
        return None
    with canvas.style():
        figure = canvas.figure(HEIGHT)
        axes = figure.add_subplot()
        launchers = results.unique(each.check for each in series)
        for each in series:
            place = launchers.index(each.check)
            # each thinner than the one before, so that lines that coincide all show
            width = len(launchers) - place
            points = sorted(each.points.items())
            axes.plot(
                [size for size, _ in points],
                [row["bus_mb_s"] for _, row in points],
                label=each.label,
                color=COLOURS[place % len(COLOURS)],
                marker=MARKERS[place % len(MARKERS)],
                markersize=7 if each.reference else 3.5 + 2.2 * width,
                linewidth=1.5 if each.reference else 1.8 * width,
                linestyle="--" if each.reference else "-",
                # hollow, so that the reference can be told apart in print, too
                markerfacecolor="white" if each.reference else None,
            )
        sizes = sorted({size for each in series for size in each.points})
        canvas.over_size(axes, sizes[:: -(-len(sizes) // _MOST_SIZES)])
        axes.set_xlabel("Message size (bytes per rank)")
        axes.set_ylabel("Bus bandwidth (MB/s, 1 MB = 10⁶ B)")
        figure.suptitle(f"Allreduce, {_ranks(report)}{report.environment} ({report.engine})")
        axes.legend(frameon=False)
        return canvas.encoded(figure)


def _ranks(report: RunReport) -> str:
    """``2 ranks, `` if every launcher in the picture started as many; else empty."""
    shown = [check for check in report.checks if check["bandwidth"] and not check["failures"]]
    counts = {len(results.ranks(check)) for check in shown}
    return f"{plural(counts.pop(), 'rank')}, " if len(counts) == 1 else ""


def timings(report: RunReport) -> Optional[bytes]:
    """Return a PNG of the wall time of the steps in their order; None if none took any time.

    Of more than `MOST_STEPS` it shows the longest.  A stage without steps counts as a step.
    """
    steps = [(stage.name, step) for stage in report.stages for step in stage.steps or [stage]]
    bars = [bar for bar in steps if bar[1].seconds > 0]
    longest = sorted(bars, key=lambda bar: -bar[1].seconds)[:MOST_STEPS]
    shown = [bar for bar in bars if bar in longest][:MOST_STEPS]
    if not shown:
        return None
    with canvas.style():
        figure = canvas.figure(110 + 26 * len(shown))
        axes = figure.add_subplot()
        stages = [stage.name for stage in report.stages]
        named = set()
        for row, (stage, step) in enumerate(shown):
            colour = COLOURS[stages.index(stage) % len(COLOURS)]
            label = None if stage in named else stage
            named.add(stage)
            bar = axes.barh(row, step.seconds, color=colour, label=label)
            axes.bar_label(bar, [duration(step.seconds)], padding=4, fontsize=10)
        canvas.name_bars(axes, [step.name for _, step in shown], margin=0.2)
        axes.set_xlabel("Wall time (s)")
        left = f", the longest {len(shown)} of {len(bars)} steps" if len(shown) < len(bars) else ""
        figure.suptitle(f"Time by step, {report.environment} ({report.engine}){left}")
        axes.legend(frameon=False, title="Stage")
        return canvas.encoded(figure)
