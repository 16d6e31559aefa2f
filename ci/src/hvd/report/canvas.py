"""What all pictures have in common: their style, their size in pixels, their bytes.

Matplotlib is imported where it is used: it takes a second, which the other commands of
``./hvd`` need not spend.  Its state-machine interface, `pyplot`, is not used at all, so that no
display, no default backend and no state of the process matter.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, ContextManager

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Pixels of a picture's width.
WIDTH = 800
#: Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")

_DPI = 100
_DIGEST = re.compile(r"hvd ([0-9a-f]{64})")


def style() -> ContextManager[None]:
    """Matplotlib's own settings, but for ours."""
    import matplotlib.style

    # A user's matplotlibrc must not change the picture; a fixed salt gives the same SVG again.
    ours = {"font.size": 12, "figure.titlesize": 13, "svg.hashsalt": "hvd"}
    return matplotlib.style.context(["default", ours])


def figure(height: int) -> Figure:
    """An empty figure, ``height`` pixels high."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    empty = Figure(figsize=(WIDTH / _DPI, height / _DPI), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(empty)
    return empty


def encoded(drawn: Figure, format: str = "png", digest: str = "") -> bytes:
    """The bytes of a picture, ``png`` or ``svg``: the same for the same input.

    Args:
        drawn: the figure.
        format: ``png`` or ``svg``.
        digest: of what it shows, for `digest_of`: other fonts make other bytes of the same.
    """
    buffer = io.BytesIO()
    # Without matplotlib's version and the date.
    metadata = {"Software": None} if format == "png" else {"Date": None, "Creator": None}
    if digest:
        metadata["Description"] = f"hvd {digest}"
    drawn.savefig(buffer, format=format, metadata=metadata)
    return buffer.getvalue()


def digest_of(picture: str) -> str:
    """The digest that an SVG was made with; empty where it has none."""
    found = _DIGEST.search(picture)
    return found[1] if found else ""


def clipped(label: str, limit: int = 34) -> str:
    """``label`` for an axis: not too long, and never set as mathematics."""
    label = label if len(label) <= limit else label[: limit - 1] + "…"
    return label.replace("$", r"\$")
