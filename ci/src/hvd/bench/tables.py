"""The tables of collectives."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from hvd.bench.collectives import ALLREDUCE, OURS, PEERS, RELEASED
from hvd.bench.result import Collective, Collectives
from hvd.report.text import duration, figures, plural, size


class Table(NamedTuple):
    """A table of the page; its first column alone is aligned to the left."""

    title: str
    header: Sequence[str]
    rows: List[Sequence[str]]


def of(part: Collectives, oversubscribed: bool) -> Iterator[Table]:
    """Yield the tables of runs with as many cores as ranks, or of those with fewer."""
    counts = sorted({row.ranks for row in part.rows})
    for ranks in [each for each in counts if (each > part.host["cores"]) == oversubscribed]:
        for controller in OURS:
            if part.find(OURS[controller], ranks=ranks):
                name = f"{controller_title(controller)}, {plural(ranks, 'rank')}"
                yield _sizes(part, controller, ranks, f"Allreduce by size: {name}")
                yield from _others(part, controller, ranks, name)


def controller_title(controller: str) -> str:
    return {"mpi": "MPI", "gloo": "Gloo"}[controller]


def _sizes(part: Collectives, controller: str, ranks: int, title: str) -> Table:
    """Sums of float32 in place."""
    names = OURS[controller], RELEASED[controller], PEERS[controller]
    header = ["Size", "Minimum", "Median", "95 %", "Maximum", "Algorithm", "Bus"]
    released = part.find(names[1], ranks=ranks, **ALLREDUCE)
    header += ["As released"] * bool(released) + [PEERS[controller], "95 %", "Ratio"]
    rows = []
    for ours in _rows(part, names[0], ranks, **ALLREDUCE):
        where = {"ranks": ranks, "bytes": ours.bytes, **ALLREDUCE}
        peer = part.find(names[2], **where)
        row = [size(ours.bytes), *map(duration, (ours.minimum, ours.median, ours.p95))]
        row += [duration(ours.maximum), _speed(ours.bandwidth), _speed(ours.bus_bandwidth)]
        row += [_median(part.find(names[1], **where))] * bool(released)
        row += [_median(peer), duration(peer.p95), _ratio(ours, peer)] if peer else ["–"] * 3
        rows.append(row)
    return Table(title, header, rows)


def _others(part: Collectives, controller: str, ranks: int, name: str) -> Iterator[Table]:
    ours = [row for row in _rows(part, OURS[controller], ranks) if not _is(row, **ALLREDUCE)]
    single = [row for row in ours if row.bus_bandwidth]
    sizes = sorted({row.bytes for row in single})
    kinds = dict.fromkeys((row.operation, row.dtype, row.in_place) for row in single)
    rows = []
    for operation, dtype, in_place in kinds:
        where = {"operation": operation, "dtype": dtype, "in_place": in_place, "ranks": ranks}
        place = "in place" if in_place else "out of place"
        cells = [_beside(part, controller, **where, bytes=each) for each in sizes]
        rows.append([f"{operation}, {dtype}, {place}", *cells])
    if rows:
        header = ["Median, ratio to the peer's", *map(size, sizes)]
        yield Table(f"Operations and types: {name}", header, rows)
    whole = [row for row in ours if not row.bus_bandwidth]
    rows = [
        [
            f"{row.operation}, {size(row.bytes)}",
            duration(row.median),
            duration(row.p95),
            *_beside_all(part, controller, row),
        ]
        for row in whole
    ]
    if rows:
        header = ["Operation, size", "Median", "95 %", "As released", "Ratio"]
        header += [
            PEERS[controller] if controller == "mpi" else "torch.distributed, DDP",
            "Ratio ",
        ]
        yield Table(f"500 tensors, and training: {name}", header, rows)


def _beside(part: Collectives, controller: str, **where: object) -> str:
    ours, peer = (part.find(names[controller], **where) for names in (OURS, PEERS))
    text = _median(ours)
    return f"{text}, {_ratio(ours, peer)}" if ours and peer else text


def _beside_all(part: Collectives, controller: str, row: Collective) -> Tuple[str, ...]:
    where = {"operation": row.operation, "ranks": row.ranks, "bytes": row.bytes}
    released = part.find(RELEASED[controller], **where)
    # the peer has no groups: compare with its tensors one by one
    where["operation"] = row.operation.replace("grouped allreduce", "many allreduces")
    peer = part.find(PEERS[controller], **where)
    return (_median(released), _ratio(row, released), _median(peer), _ratio(row, peer))


def _rows(part: Collectives, name: str, ranks: int, **where: object) -> List[Collective]:
    return [row for row in part.rows if _is(row, name=name, ranks=ranks, **where)]


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
    return (
        f"{figures(bandwidth / 1e9)} GB/s"
        if bandwidth > 1e9
        else f"{figures(bandwidth / 1e6)} MB/s"
    )
