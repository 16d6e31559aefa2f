"""The totals of a trace by phase, by tensor and by rank.

NumPy is imported where it is used: most commands of ``./hvd`` do not need it.
"""

from __future__ import annotations

import collections
import math
from typing import TYPE_CHECKING, Dict, List, NamedTuple

from hvd.timeline import trace as traces
from hvd.timeline.trace import NEGOTIATE, Span, Trace

if TYPE_CHECKING:
    import numpy as np

#: The kind of a phase, by the prefixes of its name: waiting for other ranks, queued for the data
#: of this one, and so on.
_KINDS = {
    "waiting": (NEGOTIATE,),
    "queued": ("QUEUE", "WAIT_FOR"),
    "copying": ("MEMCPY_", "ALLOCATE_", "COPY_", "INIT_FUSION"),
    "network": ("MPI_", "NCCL_", "GLOO_", "CCL_", "DDL_", "INIT_NCCL"),
}


class Phase(NamedTuple):
    """A phase over the whole trace.

    Args:
        name: Horovod's name of it.
        kind: one of ``waiting``, ``queued``, ``copying``, ``network`` and ``rest``.
        wall: seconds in which at least one tensor was in it.
        tensors: seconds, summed over the tensors.
        entered: how often a tensor entered it.
    """

    name: str
    kind: str
    wall: float
    tensors: float
    entered: int


class Tensor(NamedTuple):
    """A tensor over the whole trace: its seconds by phase, and how often it was reduced."""

    name: str
    phases: Dict[str, float]
    operations: int

    @property
    def seconds(self) -> float:
        return sum(self.phases.values())


class Rank(NamedTuple):
    """How often a rank was the last to be ready, and how long the first had waited by then."""

    number: int
    last: int
    waited: float


def phases(trace: Trace) -> List[Phase]:
    """Return every phase, the one with most wall time first."""
    by_phase: Dict[str, List[Span]] = {name: [] for name in trace.entered}
    for span in trace.spans:
        by_phase[span.phase].append(span)
    found = []
    for name, spans in by_phase.items():
        kind = next((kind for kind, begin in _KINDS.items() if name.startswith(begin)), "rest")
        total = sum(span.seconds for span in spans)
        found.append(Phase(name, kind, union(spans), total, trace.entered[name]))
    return sorted(found, key=lambda phase: (-phase.wall, phase.name))


def union(spans: List[Span]) -> float:
    """Return the seconds in which at least one of ``spans`` was in progress."""
    total, reached = 0.0, -math.inf
    for start, end in sorted((span.start, span.end) for span in spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def tensors(trace: Trace) -> List[Tensor]:
    """Return every tensor, the one with most time first."""
    seconds: Dict[str, Dict[str, float]] = {}
    for span in trace.spans:
        mine = seconds.setdefault(span.tensor, collections.defaultdict(float))
        mine[span.phase] += span.seconds
    times = collections.Counter(name for name, _ in trace.negotiations)
    found = [Tensor(name, mine, times[name]) for name, mine in seconds.items()]
    return sorted(found, key=lambda tensor: (-tensor.seconds, tensor.name))


def ranks(trace: Trace) -> List[Rank]:
    """Return the ranks that were the last to be ready, the one with the longest waits first.

    Negotiations whose answer Horovod had cached name no ranks.
    """
    waits: Dict[int, List[float]] = collections.defaultdict(list)
    for _, ready in trace.negotiations:
        if len(ready) > 1:
            last = max(ready, key=ready.get)
            waits[last].append(ready[last] - min(ready.values()))
    found = [Rank(rank, len(times), sum(times)) for rank, times in waits.items()]
    return sorted(found, key=lambda rank: (-rank.waited, rank.number))


def missing(trace: Trace, unfinished: traces.Tensor) -> List[int]:
    """Return the ranks of the trace that were not ready for an operation."""
    every = [ready for _, ready in trace.negotiations]
    every += [each.ready for each in trace.unfinished]
    return sorted(set().union(*every) - set(unfinished.ready))


def in_flight(spans: List[Span], edges: np.ndarray) -> np.ndarray:
    """Return the mean number of ``spans`` in progress in each bin, shape (bins,).

    Args:
        edges: of the bins, in seconds, ascending, shape (bins + 1,).
    """
    import numpy as np

    starts = np.array([span.start for span in spans])
    ends = np.array([span.end for span in spans])
    seconds = [
        np.clip(np.minimum(ends, high) - np.maximum(starts, low), 0, None).sum()
        for low, high in zip(edges, edges[1:])
    ]
    return np.array(seconds) / np.diff(edges)
