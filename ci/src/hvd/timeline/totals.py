"""What a trace comes to: by phase, by tensor and by rank.

NumPy is imported where it is used, as the other commands of ``./hvd`` have no need of it.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Dict, List

from hvd.timeline.trace import NEGOTIATE, Open, Span, Trace

if TYPE_CHECKING:
    import numpy as np

#: What goes on in a phase, by what its name begins with: waiting for other ranks, queued for
#: this one's data, and so on.
_KINDS = (
    ("waiting", (NEGOTIATE,)),
    ("queued", ("QUEUE", "WAIT_FOR")),
    ("copying", ("MEMCPY_", "ALLOCATE_", "COPY_", "INIT_FUSION")),
    ("network", ("MPI_", "NCCL_", "GLOO_", "CCL_", "DDL_", "INIT_NCCL")),
)


@dataclasses.dataclass(frozen=True)
class Phase:
    """A phase over the whole trace.

    Args:
        name: as Horovod has it.
        kind: what goes on in it, in a word.
        wall: seconds in which at least one tensor was in it.
        tensors: seconds, summed over the tensors that were in it at a time.
        entered: how often a tensor came into it.
    """

    name: str
    kind: str
    wall: float
    tensors: float
    entered: int


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor over the whole trace: its seconds by phase, and how often it was reduced."""

    name: str
    phases: Dict[str, float]
    operations: int

    @property
    def seconds(self) -> float:
        return sum(self.phases.values())


@dataclasses.dataclass(frozen=True)
class Rank:
    """How often a rank was the last to be ready, and how long the first had waited by then."""

    number: int
    last: int
    waited: float


def kind(phase: str) -> str:
    """What goes on in a phase, in a word."""
    for words, beginnings in _KINDS:
        if phase.startswith(beginnings):
            return words
    return "rest"


def phases(trace: Trace) -> List[Phase]:
    """Every phase, the one with most wall time first."""
    by_phase: Dict[str, List[Span]] = {name: [] for name in trace.entered}
    for span in trace.spans:
        by_phase[span.phase].append(span)
    found = [
        Phase(
            name,
            kind(name),
            union(spans),
            sum(span.seconds for span in spans),
            trace.entered[name],
        )
        for name, spans in by_phase.items()
    ]
    return sorted(found, key=lambda phase: (-phase.wall, phase.name))


def union(spans: List[Span]) -> float:
    """Seconds in which at least one of ``spans`` went on."""
    import numpy as np

    if not spans:
        return 0.0
    edges = np.array(sorted((span.start, span.end) for span in spans))
    before = np.concatenate([[-np.inf], np.maximum.accumulate(edges[:, 1])[:-1]])
    fresh = edges[:, 1] - np.maximum(edges[:, 0], before)
    return float(np.clip(fresh, 0, None).sum())


def tensors(trace: Trace) -> List[Tensor]:
    """Every tensor, the dearest first."""
    seconds: Dict[str, Dict[str, float]] = collections.defaultdict(dict)
    for span in trace.spans:
        mine = seconds[span.tensor]
        mine[span.phase] = mine.get(span.phase, 0.0) + span.seconds
    times = collections.Counter(each.tensor for each in trace.negotiations)
    found = [Tensor(name, mine, times[name]) for name, mine in seconds.items()]
    return sorted(found, key=lambda tensor: (-tensor.seconds, tensor.name))


def ranks(trace: Trace) -> List[Rank]:
    """Those that were the last to be ready, the one that was waited for longest first.

    Negotiations that Horovod had cached the answer to name no ranks.
    """
    last: Dict[int, int] = collections.Counter()
    waited: Dict[int, float] = collections.defaultdict(float)
    for each in trace.negotiations:
        if len(each.ready) > 1:
            times = sorted(each.ready, key=lambda entry: entry[1])
            rank, end = times[-1]
            last[rank] += 1
            waited[rank] += end - times[0][1]
    found = [Rank(rank, last[rank], waited[rank]) for rank in last]
    return sorted(found, key=lambda rank: (-rank.waited, rank.number))


def missing(trace: Trace, unfinished: Open) -> List[int]:
    """The ranks known from elsewhere in the trace that were not ready for an operation."""
    known = {rank for each in trace.negotiations for rank, _ in each.ready}
    known |= {rank for each in trace.unfinished for rank in each.ready}
    return sorted(known - set(unfinished.ready))


def in_flight(spans: List[Span], edges: np.ndarray) -> np.ndarray:
    """The mean number of ``spans`` that went on in each bin.

    Args:
        spans: of one phase.
        edges: seconds, ascending, shape (bins + 1,).

    Returns:
        Shape (bins,).
    """
    import numpy as np

    starts = np.array([span.start for span in spans])
    ends = np.array([span.end for span in spans])
    # seconds of all spans up to each edge: of those begun before it, less those that ended
    before = _elapsed(starts, edges) - _elapsed(ends, edges)
    return np.diff(before) / np.diff(edges)


def _elapsed(times: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """For each edge, the sum of the time since each of ``times`` that lies before it."""
    import numpy as np

    times = np.sort(times)
    count = np.searchsorted(times, edges)
    sums = np.concatenate([[0.0], np.cumsum(times)])
    return count * edges - sums[count]
