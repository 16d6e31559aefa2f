"""The report's pictures: bandwidth over message size, and where the time went."""

from __future__ import annotations

from typing import List, Optional, Tuple

from hvd.report import canvas, checks
from hvd.report.canvas import COLOURS
from hvd.report.model import RunReport
from hvd.report.text import duration, plural, size

#: Pixels of the height of `bandwidth`.
HEIGHT = 500
#: Steps that `timings` shows at most.
MOST_STEPS = 15

_MARKERS = "osD^vP"


def bandwidth(report: RunReport) -> Optional[bytes]:
    """A PNG of bus bandwidth over message size; None where there is nothing to draw."""
    series = checks.bandwidth(report.checks)
    if not series:
        return None
    with canvas.style():
        figure = canvas.figure(HEIGHT)
        axes = figure.add_subplot()
        launchers = list(dict.fromkeys(each.check for each in series))
        for each in series:
            place = launchers.index(each.check)
            # Each thinner than the one before: where they coincide, all of them show.
            width = len(launchers) - place
            axes.plot(
                [point.bytes for point in each.points],
                [point.mb_s for point in each.points],
                label=each.label,
                color=COLOURS[place % len(COLOURS)],
                marker=_MARKERS[place % len(_MARKERS)],
                markersize=7 if each.reference else 3.5 + 2.2 * width,
                linewidth=1.5 if each.reference else 1.8 * width,
                linestyle="--" if each.reference else "-",
                # Hollow, so that the reference can be told apart in print, too.
                markerfacecolor="white" if each.reference else None,
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        sizes = sorted({point.bytes for each in series for point in each.points})
        axes.set_xticks(_thinned(sizes), [size(count) for count in _thinned(sizes)])
        axes.minorticks_off()
        axes.set_xlabel("Message size (bytes per rank)")
        axes.set_ylabel("Bus bandwidth (MB/s, 1 MB = 10⁶ B)")
        figure.suptitle(f"Allreduce, {_ranks(report)}{report.environment} ({report.engine})")
        axes.grid(color="#dddddd")
        axes.legend(frameon=False)
        return canvas.encoded(figure)


def _ranks(report: RunReport) -> str:
    """``2 ranks, `` where every launcher that is in the picture started as many."""
    shown = [each for each in report.checks if each.get("bandwidth") and checks.passed(each)]
    counts = {len(checks.ranks(check)) for check in shown}
    return f"{plural(counts.pop(), 'rank')}, " if len(counts) == 1 and counts != {0} else ""


def timings(report: RunReport) -> Optional[bytes]:
    """A PNG of how long the steps took, in their order; None where nothing took any time.

    Of more than `MOST_STEPS` it shows those that took longest.  A stage without steps counts
    as a step.
    """
    bars = [bar for bar in _bars(report) if bar[2] > 0]
    longest = sorted(bars, key=lambda bar: -bar[2])[:MOST_STEPS]
    shown = [bar for bar in bars if bar in longest][:MOST_STEPS]
    if not shown:
        return None
    with canvas.style():
        figure = canvas.figure(110 + 26 * len(shown))
        axes = figure.add_subplot()
        stages = [stage.name for stage in report.stages]
        for row, (stage, _, seconds) in enumerate(shown):
            colour = COLOURS[stages.index(stage) % len(COLOURS)]
            first = stage not in [bar[0] for bar in shown[:row]]
            bar = axes.barh(row, seconds, color=colour, label=stage if first else None)
            axes.bar_label(bar, [duration(seconds)], padding=4, fontsize=10)
        axes.set_yticks(range(len(shown)), [canvas.clipped(step) for _, step, _ in shown])
        axes.invert_yaxis()
        axes.margins(x=0.2)  # room for the label of the longest
        axes.set_xlabel("Wall time (s)")
        left = f", the longest {len(shown)} of {len(bars)} steps" if len(shown) < len(bars) else ""
        figure.suptitle(f"Time by step, {report.environment} ({report.engine}){left}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, title="Stage")
        return canvas.encoded(figure)


def _bars(report: RunReport) -> List[Tuple[str, str, float]]:
    """Stage, step and seconds of everything that may become a bar."""
    bars: List[Tuple[str, str, float]] = []
    for stage in report.stages:
        steps = [(stage.name, step.name, step.seconds) for step in stage.steps]
        bars += steps or [(stage.name, stage.name, stage.seconds)]
    return bars


def _thinned(sizes: List[float], most: int = 9) -> List[float]:
    """Every nth of ``sizes``, such that their labels do not overlap."""
    return sizes[:: -(-len(sizes) // most)]
