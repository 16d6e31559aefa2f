"""``docs/performance.md`` and its pictures: made of what was measured."""

from __future__ import annotations

import pathlib
from typing import Dict, List, NamedTuple, Optional, Sequence

from hvd.bench import allreduce, builds, picture, result, solves
from hvd.bench.result import Part, Row
from hvd.core import paths
from hvd.docs import site_page
from hvd.model.environment import DEFAULT
from hvd.report import canvas
from hvd.report.text import Markdown, duration, escape, size, table

BEGIN = "<!-- made by ./hvd bench -->"
PAGE = paths.ROOT / "docs" / "performance.md"
_NONE = "–"


class Goal(NamedTuple):
    """A ratio that is aimed at.

    Args:
        text: what of what.
        part: which measures it.
        name: the row.
        to: what it is compared with.
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

    def ratio(self, parts: Sequence[Part]) -> Optional[float]:
        """What was measured; None where it was not."""
        for part in parts:
            if part.name == self.part:
                found = part.ratio(self.name, self.to, **self.where)
                return found and (1 / found if self.speed else found)
        return None

    def met(self, ratio: float) -> bool:
        return ratio >= self.limit if self.speed else ratio <= self.limit

    @property
    def limit_text(self) -> str:
        return f"{'at least' if self.speed else 'at most'} {self.limit:g}"


GOALS = (
    Goal(
        "Time of `spack install` over plain pip",
        *("builds", "spack install", builds.REFERENCE, {"subject": DEFAULT}, 1.05),
    ),
    Goal(
        f"Time to concretize `{DEFAULT}` over builtin's recipe",
        *("solves", solves.OURS, solves.BUILTIN, {"subject": DEFAULT}, 0.25),
    ),
    Goal(
        "Bandwidth of Horovod's allreduce over MPI, 64 MiB on two ranks, over mpi4py's",
        *("allreduce", allreduce.OURS["mpi"], allreduce.PEERS["mpi"]),
        *({"ranks": 2, "bytes": 64 * 2**20}, 0.9, True),
    ),
)


def write(check: bool = False) -> List[pathlib.Path]:
    """Bring the page and its pictures up to what was measured, or with ``check`` refuse them.

    Returns:
        The files that were written.

    Raises:
        HvdError: with ``check``, one is not up to date; or a result is damaged.
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


def page(parts: Sequence[Part]) -> str:
    """The part of the page that is made."""
    if not parts:
        return "Nothing has been measured yet.\n"
    lines = ["## Goals", "", *_goals(parts)]
    sections = {"builds": _builds, "solves": _solves, "allreduce": _allreduce}
    for part in parts:
        lines += sections[part.name](part)
    return "\n".join(lines).rstrip() + "\n"


def _goals(parts: Sequence[Part]) -> List[str]:
    rows = []
    for goal in GOALS:
        ratio = goal.ratio(parts)
        verdict = _NONE if ratio is None else "met" if goal.met(ratio) else "**not met**"
        rows.append((Markdown(goal.text), goal.limit_text, _ratio(ratio), Markdown(verdict)))
    return table(["Ratio", "Goal", "Measured", ""], rows, right=("Measured",))


def _measured(part: Part, title: str) -> List[str]:
    """A section's title, when and on what it was measured, and its picture."""
    host = part.host
    cpu = f"{host.get('cpu')}, {host.get('cores')} cores, {size(host.get('memory', 0))}"
    versions = ", ".join(f"{name} {version}" for name, version in part.versions.items())
    return [
        f"## {title}",
        "",
        escape(f"{part.date}, {host.get('os')}, {cpu}; {versions}."),
        "",
        f"![{title}](performance-{part.name}.svg)",
        "",
    ]


def _builds(part: Part) -> List[str]:
    rows = [
        (
            row.name,
            *_times(row),
            _ratio(part.ratio(row.name, builds.REFERENCE, subject=row.subject)),
            row.note,
        )
        for row in part.rows
    ]
    header = ["Built by", "Median", "From, to", "Over plain pip", "What it consists of"]
    return _measured(part, "Builds") + table(header, rows, right=("Median", "Over plain pip"))


def _solves(part: Part) -> List[str]:
    rows = []
    for ours in part.rows:
        if ours.name != solves.OURS:
            continue
        peer = next(
            (r for r in part.rows if (r.name, r.subject) == (solves.BUILTIN, ours.subject)), None
        )
        theirs = duration(peer.median) if peer and peer.seconds else "no solution"
        ratio = part.ratio(solves.OURS, solves.BUILTIN, subject=ours.subject)
        rows.append(
            (ours.subject, *_times(ours), theirs, _ratio(ratio), peer.note if peer else "")
        )
    header = ["Environment", "Median", "From, to", "Builtin", "Over builtin", "Builtin's spec"]
    lines = table(header, rows, right=("Median", "Builtin", "Over builtin"))
    together = [row for row in part.rows if row.name == solves.TOGETHER]
    grown = [
        (row.subject, duration(row.median), duration(row.median / int(row.subject)))
        for row in together
    ]
    header = ["Environments at a time", "Time", "For each"]
    return [
        *_measured(part, "Concretization"),
        *lines,
        *(table(header, grown, right=header) if grown else []),
    ]


def _allreduce(part: Part) -> List[str]:
    lines = _measured(part, "Allreduce")
    pairs = [(allreduce.OURS[name], peer) for name, peer in allreduce.PEERS.items()]
    for ranks in sorted({row.ranks for row in part.rows}):
        sizes = sorted({row.bytes for row in part.rows if row.ranks == ranks})
        header = ["Bytes per rank"]
        for ours, peer in pairs:
            header += [ours, peer, "Ratio"]
        rows = []
        for count in sizes:
            where = {"ranks": ranks, "bytes": count}
            row: List[object] = [size(count)]
            for ours, peer in pairs:
                found = [part.find(name, **where) for name in (ours, peer)]
                row += [_spread(each) for each in found]
                row.append(_ratio(part.ratio(ours, peer, **where)))
            rows.append(row)
        lines += [f"### {ranks} rank{'s' * (ranks > 1)}", "", *table(header, rows, right=header)]
    return lines


def _times(row: Row) -> List[str]:
    """The median, and the least and the most where there are several."""
    if not row.seconds:
        return [_NONE, _NONE]
    several = len(row.seconds) > 1
    ends = [duration(min(row.seconds)), duration(max(row.seconds))]
    return [duration(row.median), ", ".join(ends) if several else "once"]


def _spread(row: Optional[Row]) -> str:
    """The median, and how far most are from it."""
    if not row:
        return _NONE
    deviations = sorted(abs(seconds - row.median) for seconds in row.seconds)
    return f"{duration(row.median)} ± {deviations[len(deviations) // 2] / row.median:.0%}"


def _ratio(ratio: Optional[float]) -> str:
    return _NONE if ratio is None else f"{ratio:.2f}"
