"""The smoke test's checks, prepared for tables, test cases and pictures.

A check is a dict as ``Check.to_dict()`` of `hvd.smoke.run` returns it.
"""

from __future__ import annotations

import collections
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

Check = Mapping[str, Any]


class Operation(NamedTuple):
    """A check's rows of one name, one for each element type and size, and all its ranks."""

    cases: List[Mapping[str, Any]]
    ranks: List[str]

    @property
    def faults(self) -> Dict[str, Dict[str, List[str]]]:
        """Kind of fault, to rank, to the cases such as ``float32 x 1000``; empty if none."""
        found: Dict[str, Dict[str, List[str]]] = {}
        for kind, recorded in (("wrong result", False), ("not finished", None)):
            for rank in self.ranks:
                # a rank that did not begin a case has no entry
                cases = [_title(c) for c in self.cases if c["ok"].get(rank) is recorded]
                if cases:
                    found.setdefault(kind, {})[rank] = cases
        return found

    @property
    def slowest(self) -> Optional[Tuple[str, float]]:
        """The rank that took longest, and its seconds over all cases; None if no case ended."""
        total: Dict[str, float] = collections.defaultdict(float)
        for case in self.cases:
            for rank, seconds in case["seconds"].items():
                if seconds is not None:
                    total[rank] += seconds
        return max(total.items(), key=lambda item: item[1], default=None)


def _title(case: Mapping[str, Any]) -> str:
    """``float32 x 1000``; empty for an operation without type and size."""
    size = f"x {case['elements']}" if case["elements"] is not None else ""
    return f"{case['dtype'] or ''} {size}".strip()


def operations(check: Check) -> Dict[str, Operation]:
    """Return the operations of a check by name, in the order in which they began."""
    found: Dict[str, Operation] = {}
    for row in check["operations"]:
        found.setdefault(row["operation"], Operation([], ranks(check))).cases.append(row)
    return found


def ranks(check: Check) -> List[str]:
    """Return the ranks that took part in any operation, in numerical order."""
    return sorted({rank for row in check["operations"] for rank in row["ok"]}, key=int)


class Series(NamedTuple):
    """The bandwidths of ``method`` (``horovod``, ``mpi4py``) in the check of one launcher.

    Args:
        points: bytes per rank, to the check's row with ``seconds`` and ``bus_mb_s``.
    """

    check: str
    method: str
    points: Dict[int, Mapping[str, Any]]

    @property
    def reference(self) -> bool:
        return self.method != "horovod"

    @property
    def label(self) -> str:
        """``mpirun``, or ``mpi4py, mpirun`` for the reference."""
        return f"{self.method}, {self.check}" if self.reference else self.check


def bandwidth(checks: Iterable[Check]) -> List[Series]:
    """Return the bandwidths of the checks that passed; Horovod's before the reference's.

    The figures of a check that failed may mislead: alone in a world of its own, a rank is fast.
    The bus bandwidth of a single rank is zero by definition, and left out.
    """
    found: Dict[Tuple[str, str], Series] = {}
    for check in checks:
        for row in check["bandwidth"]:
            if not check["failures"] and row["bus_mb_s"] > 0:
                key = check["name"], row["method"]
                found.setdefault(key, Series(*key, {})).points[row["bytes"]] = row
    return sorted(found.values(), key=lambda each: each.reference)  # stable


def details(checks: Iterable[Check], key: str) -> List[Tuple[Check, Any]]:
    """Return each item of the list ``key`` in the details of ``checks``, with its check."""
    return [(check, item) for check in checks for item in check["details"].get(key, [])]


def unique(items: Iterable[Any]) -> List[Any]:
    """Return ``items`` without repetitions, in order of first appearance."""
    return list(dict.fromkeys(items))
