"""What the smoke test's checks say, made ready for tables and test cases.

A check is a dict as `hvd.smoke.run.Check.to_dict` makes it.  What a check does not say is
left out or shown as unknown; it never counts as passed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

Check = Mapping[str, Any]


def name(check: Check) -> str:
    """What the check is called, such as ``mpirun``."""
    return str(check.get("name") or "unnamed check")


def passed(check: Check) -> bool:
    """It says that it passed, and nothing else in it says otherwise."""
    return check.get("passed") is True and not check.get("failures")


def failures(check: Check) -> List[str]:
    """Why it did not pass, the cause first; empty if it passed."""
    found = [str(failure) for failure in check.get("failures") or []]
    if passed(check):
        return []
    return found or ["the check did not pass and gives no reason"]


@dataclasses.dataclass(frozen=True)
class Operation:
    """All that one check says of the operations of one name.

    Args:
        name: such as ``allreduce sum``.
        dtypes: element types, in order of appearance.
        elements: the least and the most elements that a rank contributed, if known.
        cases: how many combinations of type and size were started.
        ranks: the ranks that took part.
        wrong: rank to the cases in which its result was wrong.
        unfinished: rank to the cases that it did not end, or not even start.
        seconds: rank to its wall time in seconds, over all cases that it ended.
    """

    name: str
    dtypes: Tuple[str, ...]
    elements: Optional[Tuple[int, int]]
    cases: int
    ranks: Tuple[str, ...]
    wrong: Dict[str, List[str]]
    unfinished: Dict[str, List[str]]
    seconds: Dict[str, float]

    @property
    def ok(self) -> bool:
        """Every rank that took part ended every case with the right result."""
        return bool(self.ranks) and not self.wrong and not self.unfinished

    @property
    def slowest(self) -> Optional[Tuple[str, float]]:
        """The rank that took longest, and its seconds; None where no rank ended a case."""
        if not self.seconds:
            return None
        return max(self.seconds.items(), key=lambda item: item[1])


def operations(check: Check) -> List[Operation]:
    """The operations of a check by name, in the order in which they began."""
    rows = check.get("operations") or []
    everyone = ranks(check)
    grouped: Dict[str, List[Mapping[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(str(row.get("operation") or "unnamed operation"), []).append(row)
    return [_operation(name, group, everyone) for name, group in grouped.items()]


def ranks(check: Check) -> List[str]:
    """The ranks that took part in any operation, in numerical order."""
    found: Set[str] = set()
    for row in check.get("operations") or []:
        for key in ("seconds", "ok"):
            found.update(str(rank) for rank in row.get(key) or {})
    return sorted(found, key=lambda rank: (len(rank), rank))


def _operation(name: str, rows: Sequence[Mapping[str, Any]], everyone: List[str]) -> Operation:
    wrong: Dict[str, List[str]] = {}
    unfinished: Dict[str, List[str]] = {}
    total: Dict[str, float] = {}
    for row in rows:
        ok, seconds = _by_rank(row, "ok"), _by_rank(row, "seconds")
        for rank in everyone:
            if ok.get(rank) is False:
                wrong.setdefault(rank, []).append(_case(row))
            elif ok.get(rank) is not True:
                unfinished.setdefault(rank, []).append(_case(row))
            if seconds.get(rank) is not None:
                total[rank] = total.get(rank, 0.0) + float(seconds[rank])
    sizes = [row["elements"] for row in rows if row.get("elements") is not None]
    return Operation(
        name=name,
        dtypes=unique(str(row["dtype"]) for row in rows if row.get("dtype")),
        elements=(min(sizes), max(sizes)) if sizes else None,
        cases=len(rows),
        ranks=tuple(everyone),
        wrong=wrong,
        unfinished=unfinished,
        seconds=total,
    )


def _by_rank(row: Mapping[str, Any], key: str) -> Dict[str, Any]:
    return {str(rank): value for rank, value in (row.get(key) or {}).items()}


def _case(row: Mapping[str, Any]) -> str:
    """``float32 x 1000``, or empty for an operation without type and size."""
    words = [str(row.get("dtype") or "")]
    if row.get("elements") is not None:
        words.append(f"x {row['elements']}")
    return " ".join(words).strip()


@dataclasses.dataclass(frozen=True)
class BuiltItem:
    """A line of `horovodrun --check-build`.

    Args:
        section: ``version``, ``frameworks``, ``controllers`` or ``operations``.
        item: such as ``pytorch``.
        expected: whether it was asked for; the version of it, in the section ``version``.
        built: likewise what was built; None for what Horovod does not list.
    """

    section: str
    item: str
    expected: Any
    built: Any

    @property
    def agrees(self) -> bool:
        return self.expected == self.built


def built_items(check: Check) -> List[BuiltItem]:
    """What was asked for and what was built; empty for a check of something else."""
    return [
        BuiltItem(*(row[key] for key in ("section", "item", "expected", "built")))
        for row in (check.get("details") or {}).get("items") or []
        if {"section", "item", "expected", "built"} <= row.keys()
    ]


@dataclasses.dataclass(frozen=True)
class Point:
    """An allreduce of ``bytes`` per rank: its seconds, and its bus bandwidth in MB/s."""

    bytes: float
    seconds: float
    mb_s: float


@dataclasses.dataclass(frozen=True)
class Series:
    """The bandwidth that one method had under one launcher.

    Args:
        check: name of the check, which is that of the launcher.
        method: ``horovod``, or ``mpi4py`` for the reference.
        points: by increasing size; none without a positive bandwidth.
    """

    check: str
    method: str
    points: Tuple[Point, ...]

    @property
    def reference(self) -> bool:
        """It is MPI by way of mpi4py, not Horovod."""
        return self.method != "horovod"

    @property
    def label(self) -> str:
        """``mpirun``, or ``mpi4py, mpirun`` for the reference."""
        return f"{self.method}, {self.check}" if self.reference else self.check


def bandwidth(checks: Iterable[Check]) -> List[Series]:
    """The bandwidths of the checks that passed; Horovod's before the reference's.

    What ranks that failed have measured may not be what it seems: alone in a world of its
    own, a rank is fast.  The bus bandwidth of a single rank is zero by definition; there is
    no series of it.
    """
    found: Dict[Tuple[str, str], List[Point]] = {}
    for check in filter(passed, checks):
        for row in check.get("bandwidth") or []:
            point = Point(*(float(row.get(key) or 0) for key in ("bytes", "seconds", "bus_mb_s")))
            if point.bytes > 0 and point.seconds > 0 and 0 < point.mb_s < math.inf:
                found.setdefault((name(check), str(row.get("method"))), []).append(point)
    series = [
        Series(check, method, tuple(sorted(points, key=lambda p: p.bytes)))
        for (check, method), points in found.items()
    ]
    return sorted(series, key=lambda each: each.reference)  # stable: else in order of checks


def left_out(checks: Iterable[Check]) -> List[Tuple[str, str, str]]:
    """What no check tried, and why: operation, element type, reason; each once."""
    rows = [row for check in checks for row in (check.get("details") or {}).get("left_out") or []]
    return list(
        unique(
            tuple(str(row.get(key) or "") for key in ("operation", "dtype", "reason"))
            for row in rows
        )
    )


def mpi_libraries(checks: Iterable[Check]) -> Dict[str, List[str]]:
    """The MPI libraries that Horovod had loaded, each with the checks in which it had."""
    found: Dict[str, List[str]] = {}
    for check in checks:
        for library in (check.get("details") or {}).get("mpi_libraries") or []:
            found.setdefault(str(library), []).append(name(check))
    return found


def unique(items: Iterable[Any]) -> Tuple[Any, ...]:
    """``items`` without repetition, in order of first appearance."""
    return tuple(dict.fromkeys(items))
