"""The tables of collectives."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Sequence

from hvd.bench.collectives import ALLREDUCE, OURS, PEERS, RELEASED
from hvd.bench.result import Collective, Collectives
from hvd.report.text import duration, figures, plural, size


class Table(NamedTuple):
    """A table of the page; its first column alone is aligned to the left."""

    title: str
    header: Sequence[str]
    rows: List[Sequence[str]]


#: The controllers and their names on the page.
CONTROLLERS = {"mpi": "MPI", "gloo": "Gloo"}


def of(part: Collectives, oversubscribed: bool) -> Iterator[Table]:
    """Yield the tables of runs with as many cores as ranks, or of those with fewer."""
    counts = sorted({row.ranks for row in part.rows})
    for ranks in [each for each in counts if (each > part.host["cores"]) == oversubscribed]:
        for controller, title in CONTROLLERS.items():
            ours = [row for row in part.rows if _is(row, name=OURS[controller], ranks=ranks)]
            of = f"{title}, {plural(ranks, 'rank')}"
            if ours:
                sums = [row for row in ours if _is(row, **ALLREDUCE)]
                yield _sizes(part, controller, sums, f"Allreduce by size: {of}")
            others = [row for row in ours if not _is(row, **ALLREDUCE)]
            single = [row for row in others if row.bus_bandwidth]
            if single:
                yield _operations(part, controller, single, f"Operations and types: {of}")
            whole = [row for row in others if not row.bus_bandwidth]
            if whole:
                yield _whole(part, controller, whole, f"500 tensors, and training: {of}")


def _sizes(part: Collectives, controller: str, sums: List[Collective], title: str) -> Table:
    """Sums of float32 in place."""
    header = ["Size", "Minimum", "Median", "95 %", "Maximum", "Algorithm", "Bus"]
    released = any(part.find(RELEASED[controller], ranks=r.ranks, **ALLREDUCE) for r in sums)
    header += ["As released"] * released + [PEERS[controller], "95 %", "Ratio"]
    rows = []
    for ours in sums:
        where = {"ranks": ours.ranks, "bytes": ours.bytes, **ALLREDUCE}
        peer = part.find(PEERS[controller], **where)
        row = [size(ours.bytes), *map(duration, (ours.minimum, ours.median, ours.p95))]
        row += [duration(ours.maximum), _speed(ours.bandwidth), _speed(ours.bus_bandwidth)]
        row += [_median(part.find(RELEASED[controller], **where))] * released
        row += [_median(peer), duration(peer.p95), _ratio(ours, peer)] if peer else ["–"] * 3
        rows.append(row)
    return Table(title, header, rows)


def _operations(part: Collectives, controller: str, single: List[Collective], title: str) -> Table:
    """Single operations other than those of `_sizes`, by size."""
    sizes = sorted({row.bytes for row in single})
    rows = {}
    for row in single:
        place = "in place" if row.in_place else "out of place"
        cells = rows.setdefault(f"{row.operation}, {row.dtype}, {place}", ["–"] * len(sizes))
        keys = ("operation", "dtype", "in_place", "ranks", "bytes")
        peer = part.find(PEERS[controller], **{key: getattr(row, key) for key in keys})
        ratio = f", {_ratio(row, peer)}" if peer else ""
        cells[sizes.index(row.bytes)] = _median(row) + ratio
    header = ["Median, ratio to the peer's", *map(size, sizes)]
    return Table(title, header, [[name, *cells] for name, cells in rows.items()])


def _whole(part: Collectives, controller: str, whole: List[Collective], title: str) -> Table:
    """Many allreduces, and steps of training."""
    rows = []
    for row in whole:
        where = {"operation": row.operation, "ranks": row.ranks, "bytes": row.bytes}
        released = part.find(RELEASED[controller], **where)
        # the peer has no groups: compare with its tensors one by one
        where["operation"] = row.operation.replace("grouped allreduce", "many allreduces")
        peer = part.find(PEERS[controller], **where)
        name = f"{row.operation}, {size(row.bytes)}"
        beside = (_median(released), _ratio(row, released), _median(peer), _ratio(row, peer))
        rows.append([name, duration(row.median), duration(row.p95), *beside])
    peer_title = PEERS[controller] if controller == "mpi" else "torch.distributed, DDP"
    header = [
        "Operation, size",
        "Median",
        "95 %",
        "As released",
        "Ratio",
        peer_title,
        "Ratio ",
    ]
    return Table(title, header, rows)


def _is(row: Collective, **where: object) -> bool:
    return all(getattr(row, key) == value for key, value in where.items())


def _median(row: Optional[Collective]) -> str:
    return duration(row.median) if row else "–"


def _ratio(ours: Optional[Collective], peer: Optional[Collective]) -> str:
    return f"{ours.median / peer.median:.2f}" if ours and peer else "–"


def _speed(bandwidth: Optional[float]) -> str:
    """In MB/s or GB/s, of 10**6 and 10**9 bytes."""
    if not bandwidth:
        return "–"
    unit, factor = ("GB/s", 1e9) if bandwidth > 1e9 else ("MB/s", 1e6)
    return f"{figures(bandwidth / factor)} {unit}"
