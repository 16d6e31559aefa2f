"""``docs/performance.md`` and its pictures."""

from __future__ import annotations

import pathlib
from typing import Dict, List, NamedTuple, Optional, Sequence

from hvd.bench import allreduce, builds, picture, result, solves
from hvd.bench.result import Benchmark, Row
from hvd.core import paths
from hvd.docs import site_page
from hvd.model.environment import DEFAULT
from hvd.report import canvas, templates
from hvd.report.text import duration

BEGIN = "<!-- made by ./hvd bench -->"
PAGE = paths.ROOT / "docs" / "performance.md"


class Goal(NamedTuple):
    """A ratio to aim at.

    Args:
        text: the ratio in words, as Markdown.
        part: the part that measures it.
        name: the row.
        to: the row that it is compared with.
        where: subject, ranks and bytes of both.
        limit: the ratio of their times.
        speed: the ratio is that of speeds, so that more is better.
    """

    text: str
    part: str
    name: str
    to: str
    where: Dict[str, object]
    limit: float
    speed: bool = False

    def ratio(self, parts: Sequence[Benchmark]) -> Optional[float]:
        """Return the ratio that was measured; None if it was not."""
        part = next((part for part in parts if part.name == self.part), None)
        found = part and part.ratio(self.name, self.to, **self.where)
        return found and (1 / found if self.speed else found)

    def met(self, ratio: float) -> bool:
        return ratio >= self.limit if self.speed else ratio <= self.limit


GOALS = (
    Goal(
        "Time of `spack install` over plain pip",
        part="builds",
        name="spack install",
        to=builds.REFERENCE,
        where={"subject": DEFAULT},
        limit=1.05,
    ),
    Goal(
        f"Time to concretize `{DEFAULT}` over builtin's recipe",
        part="solves",
        name=solves.OURS,
        to=solves.BUILTIN,
        where={"subject": DEFAULT},
        limit=0.25,
    ),
    Goal(
        "Bandwidth of Horovod's allreduce over MPI, 64 MiB on two ranks, over mpi4py's",
        part="allreduce",
        name=allreduce.OURS["mpi"],
        to=allreduce.PEERS["mpi"],
        where={"ranks": 2, "bytes": 64 * 2**20},
        limit=0.9,
        speed=True,
    ),
)


def write(check: bool = False) -> List[pathlib.Path]:
    """Write the page and its pictures from the kept results, or with ``check`` refuse stale ones.

    Returns:
        The files that were written.

    Raises:
        HvdError: with ``check``, a file is out of date; or a result is damaged.
    """
    parts = result.load_all()
    stale: Dict[pathlib.Path, bytes] = {}
    text = site_page.put(PAGE, page(parts), BEGIN)
    if PAGE.read_text() != text:
        stale[PAGE] = text.encode()
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
        pairs=[(allreduce.OURS[name], peer) for name, peer in allreduce.PEERS.items()],
        spread=_spread,
    )


def _spread(row: Optional[Row]) -> str:
    """Return the median and the median deviation from it, such as ``1.20 s ± 3%``."""
    if not row or not row.seconds:
        return "–"
    deviations = sorted(abs(seconds - row.median) for seconds in row.seconds)
    return f"{duration(row.median)} ± {deviations[len(deviations) // 2] / row.median:.0%}"
