"""The support matrix as a picture: the results of each framework by Horovod, Python and MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Sequence

from hvd.core import stamp
from hvd.matrix.definition import Matrix
from hvd.matrix.result import Result
from hvd.model import specs
from hvd.report import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"all": "#009E73", "some": "#E69F00", "none": "#D55E00"}
_MEANINGS = {"all": "every cell passed", "some": "some passed", "none": "none passed"}
_PANELS = {"horovod": "Horovod", "python": "Python", "mpi": "MPI"}


def draw(matrix: Matrix, results: Sequence[Result]) -> bytes:
    """Return an SVG of the results."""
    from matplotlib.patches import Patch

    tried = [each for each in results if each.tried]
    rows = [name for name in matrix.axes["framework"] if _of(tried, framework=name)]
    with canvas.style():
        figure = canvas.figure(170 + 28 * len(rows))
        columns = [
            sorted({getattr(each.cell, axis) for each in tried}, key=specs.version_key)
            for axis in _PANELS
        ]
        panels = figure.subplots(1, len(_PANELS), width_ratios=[max(1, len(c)) for c in columns])
        for panel, axis, values in zip(panels, _PANELS, columns):
            _panel(panel, tried, rows, axis, values)
            panel.set_yticks(range(len(rows)), rows if panel is panels[0] else [""] * len(rows))
        patches = [Patch(color=c, label=_MEANINGS[name]) for name, c in _COLOURS.items()]
        figure.legend(handles=patches, loc="outside lower center", ncols=3, frameon=False)
        figure.suptitle("Cells that passed, of those tried")
        return canvas.encoded(figure, "svg", digest(results))


def digest(results: Sequence[Result]) -> str:
    """Return a digest of everything that a picture of ``results`` shows."""
    return stamp.of(sorted([each.cell.id, each.result] for each in results))


def _panel(
    panel: Axes, tried: Sequence[Result], rows: List[str], axis: str, values: List[str]
) -> None:
    for y, framework in enumerate(rows):
        for x, value in enumerate(values):
            group = _of(tried, framework=framework, **{axis: value})
            passed, total = sum(each.result == "passed" for each in group), len(group)
            if total:
                kind = "all" if passed == total else "some" if passed else "none"
                panel.bar(x, 0.9, bottom=y - 0.45, width=0.9, color=_COLOURS[kind])
                text = str(total) if passed == total else f"{passed}/{total}"
                size = 8 if len(text) < 4 else 6
                panel.text(x, y, text, ha="center", va="center", color="white", size=size)
    panel.set_xticks(range(len(values)), values, rotation=60, ha="right", size=9)
    panel.set_xlim(-0.6, max(1, len(values)) - 0.4)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.set_title(_PANELS[axis], size=11)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)


def _of(results: Sequence[Result], **part: str) -> List[Result]:
    return [each for each in results if each.cell.matches(part)]
