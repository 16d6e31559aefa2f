"""The style, size and encoding that all pictures share.

Matplotlib is imported where it is used: it takes a second, which most commands of ``./hvd`` need
not spend.  Its `pyplot` is not used, so that no display and no default backend matter.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, ContextManager, Sequence

from hvd.report.text import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Pixels of a picture's width.
WIDTH = 800
#: Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
#: A marker for each of `COLOURS`.
MARKERS = "osD^vP"

_DPI = 100
_DIGEST = re.compile(r"hvd ([0-9a-f]{64})")


def style() -> ContextManager[None]:
    """Return the context in which pictures are drawn, whatever the user's matplotlibrc says."""
    import matplotlib.style

    # a fixed salt makes the same SVG each time
    ours = {"font.size": 12, "figure.titlesize": 13, "svg.hashsalt": "hvd"}
    return matplotlib.style.context(["default", ours])


def figure(height: int) -> Figure:
    """Return an empty figure, ``height`` pixels high."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    empty = Figure(figsize=(WIDTH / _DPI, height / _DPI), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(empty)
    return empty


def name_bars(axes: Axes, names: Sequence[str], margin: float) -> None:
    """Name the horizontal bars at 0, 1, ..., the first at the top.

    ``margin``, in parts of the axis, leaves room for the longest one's label.
    """
    axes.set_yticks(range(len(names)), [clipped(name) for name in names])
    axes.invert_yaxis()
    axes.margins(x=margin)
    axes.spines[["top", "right"]].set_visible(False)


def over_size(axes: Axes, ticks: Sequence[float]) -> None:
    """Make both axes logarithmic and label the horizontal one with the sizes ``ticks`` (bytes)."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [size(count) for count in ticks])
    axes.minorticks_off()
    axes.grid(color="#dddddd")


def encoded(drawn: Figure, format: str = "png", digest: str = "") -> bytes:
    """Return a picture as ``png`` or ``svg``, the same bytes for the same input.

    ``digest`` is of what it shows, for `digest_of`: other fonts make other bytes.
    """
    buffer = io.BytesIO()
    # no version of matplotlib, no date
    metadata = {"Software": None} if format == "png" else {"Date": None, "Creator": None}
    if digest:
        metadata["Description"] = f"hvd {digest}"
    drawn.savefig(buffer, format=format, metadata=metadata)
    return buffer.getvalue()


def digest_of(picture: str) -> str:
    """Return the digest that an SVG was made with; empty if it has none."""
    found = _DIGEST.search(picture)
    return found[1] if found else ""


def clipped(label: str, limit: int = 34) -> str:
    """Return ``label``, shortened to ``limit`` characters and never set as mathematics."""
    label = label if len(label) <= limit else label[: limit - 1] + "…"
    return label.replace("$", r"\$")
