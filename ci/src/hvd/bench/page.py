"""``docs/performance.md``, its pictures, and ``docs/performance-more-ranks.md``."""

from __future__ import annotations

import pathlib
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from hvd.bench import builds, picture, result, solves, tables
from hvd.bench.collectives import ALLREDUCE, OURS, PEERS, RELEASED
from hvd.bench.result import Benchmark
from hvd.core import paths
from hvd.docs import site_page
from hvd.model.environment import DEFAULT
from hvd.report import canvas, templates

BEGIN = "<!-- made by ./hvd bench -->"
PAGE = paths.ROOT / "docs" / "performance.md"
MORE_RANKS = PAGE.with_name("performance-more-ranks.md")


class Goal(NamedTuple):
    """A ratio to aim at.

    Args:
        text: the ratio in words, as Markdown.
        part, name, to: the part that measures it, the row, and the row it is compared with.
        where: what both are of, such as a subject; the greatest of several ratios counts.
        limit: the ratio.
        of: the field of the rows that it is a ratio of.
    """

    text: str
    part: str
    name: str
    to: str
    where: Sequence[Mapping[str, object]]
    limit: float
    of: str = "median"

    def ratio(self, parts: Sequence[Benchmark]) -> Optional[float]:
        """Return the ratio that was measured; None if it was not."""
        part = next((part for part in parts if part.name == self.part), None)
        found = [part.ratio(self.name, self.to, self.of, **w) for w in self.where] if part else []
        return max((ratio for ratio in found if ratio is not None), default=None)


def _allreduces(*sizes: int) -> List[Dict[str, object]]:
    return [{**ALLREDUCE, "ranks": 2, "bytes": size} for size in sizes]


def _steps(*models: str) -> List[Dict[str, object]]:
    return [{"operation": f"training, {model} model", "ranks": 2} for model in models]


_SIZES = tuple(4 * 4**power for power in range(14))
_MPI = ("collectives", OURS["mpi"], PEERS["mpi"])
_MPI_RELEASED = (*_MPI[:2], RELEASED["mpi"])
_GLOO = ("collectives", OURS["gloo"], PEERS["gloo"])
#: Two ranks wherever there are ranks.
GOALS = (
    Goal("`spack install` vs plain pip",
         "builds", "spack install", builds.REFERENCE, [{"subject": DEFAULT}], 0.75),
    Goal("`spack install` vs plain pip, PyTorch and TensorFlow",
         "builds", "spack install", builds.REFERENCE, [{"subject": builds.BOTH}], 0.65),
    Goal("Installed size by `spack install` vs plain pip, worst of the two",
         "builds", "spack install", builds.REFERENCE,
         [{"subject": DEFAULT}, {"subject": builds.BOTH}], 0.1, "installed"),
    Goal(f"Concretization of `{DEFAULT}` vs builtin's recipe",
         "solves", solves.OURS, solves.BUILTIN, [{"subject": DEFAULT}], 0.25),
    Goal("Allreduce of 4 B over MPI vs Horovod as released",
         *_MPI_RELEASED, _allreduces(4), 0.02),
    Goal("Allreduce of 4 B over MPI vs mpi4py", *_MPI, _allreduces(4), 15),
    Goal("Allreduce of 64 KiB to 1 MiB over MPI vs mpi4py, worst size",
         *_MPI, _allreduces(*(s for s in _SIZES if 2**16 <= s <= 2**20)), 1.7),
    Goal("Allreduce of 16 MiB and more over MPI vs mpi4py, worst size",
         *_MPI, _allreduces(*(s for s in _SIZES if s >= 2**24)), 1.0),
    Goal("Allreduce of any size over Gloo vs torch.distributed, worst size",
         *_GLOO, _allreduces(*_SIZES), 1.0),
    Goal("Training step of the small model over MPI vs Horovod as released",
         *_MPI_RELEASED, _steps("small"), 0.75),
    Goal("Training step of the medium and large models over MPI vs Horovod as released, worst",
         *_MPI_RELEASED, _steps("medium", "large"), 1.05),
)  # fmt: skip


def write(check: bool = False) -> List[pathlib.Path]:
    """Write the page and its pictures from the results, or with ``check`` refuse stale ones.

    Raises:
        HvdError: with ``check``, a file is out of date; or a result is damaged.
    """
    parts = result.load_all()
    stale: Dict[pathlib.Path, bytes] = {}
    for path, made in ((PAGE, page(parts)), (MORE_RANKS, more_ranks(parts))):
        text = site_page.put(path, made, BEGIN)
        if path.read_text() != text:
            stale[path] = text.encode()
    for part in parts:
        path = PAGE.with_name(f"performance-{part.name}.svg")
        drawn = path.read_text() if path.exists() else ""
        if canvas.digest_of(drawn) != picture.digest(part):
            stale[path] = b"" if check else picture.draw(part)
    return site_page.bring_up_to_date(stale, check, "docs/performance says", "./hvd bench --page")


def page(parts: Sequence[Benchmark]) -> str:
    """Return the generated part of the page."""
    return templates.render(
        "bench/performance.md.j2",
        parts=parts,
        goals=GOALS,
        builds=builds,
        solves=solves,
        tables=lambda part: tables.of(part, oversubscribed=False),
    )


def more_ranks(parts: Sequence[Benchmark]) -> str:
    """Return the generated part of the page on more ranks than cores."""
    part = next((part for part in parts if part.name == "collectives"), None)
    found = tables.of(part, oversubscribed=True) if part else ()
    return templates.render("bench/more_ranks.md.j2", part=part, tables=list(found))
