"""The report for people, in Markdown that reads well as plain text, too."""

from __future__ import annotations

import collections
import pathlib
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from hvd.core import process
from hvd.model.solution import DagNode
from hvd.report import results, templates, text, verdict
from hvd.report.run_report import RunReport
from hvd.report.text import Markdown, duration, escape, figures, size

_NONE = "–"


def render(report: RunReport, directory: pathlib.Path, pictures: Sequence[str] = ()) -> str:
    """Return ``report.md`` for ``directory``, beside the ``pictures`` of these names."""
    return templates.render(
        "report/report.md.j2",
        report=report,
        pictures=pictures,
        problems=verdict.problems(report),
        sentence=verdict.sentence(report),
        ranks=results.ranks,
        details=results.details,
        mpi_libraries=_mpi_libraries(report),
        left_out=_left_out(report),
        operations=_operations(report),
        bandwidth=_bandwidth(report),
        tree="\n".join(tree(report.dag)),
        architectures=architectures(report.dag),
        link=lambda path, shown="": text.link(path, directory, shown),
        tail=lambda log: process.tail(directory / log),
    )


def _mpi_libraries(report: RunReport) -> Dict[str, List[str]]:
    """Return the MPI libraries that Horovod had loaded, each with the names of the checks."""
    found: Dict[str, List[str]] = {}
    for check, library in results.details(report.checks, "mpi_libraries"):
        found.setdefault(library, []).append(check["name"])
    return found


def _left_out(report: RunReport) -> List[str]:
    """Return the operations that no check tried, and why, each once."""
    found = []
    for _, row in results.details(report.checks, "left_out"):
        of = f" of {row['dtype']}" if row["dtype"] else ""
        found.append(f"{row['operation']}{of} ({row['reason']}).")
    return results.unique(found)


def _operations(report: RunReport) -> str:
    """Return the table of operations with a column for each check; empty if there are none."""
    by_check = {c["name"]: results.operations(c) for c in report.checks if c["operations"]}
    rows = []
    for name in results.unique(name for found in by_check.values() for name in found):
        found = [operations.get(name) for operations in by_check.values()]
        most = max(len(each.cases) for each in found if each)
        cases = [case for each in found if each for case in each.cases]
        elements = sorted(case["elements"] for case in cases if case["elements"] is not None)
        rows.append(
            [
                name,
                ", ".join(results.unique(filter(None, (case["dtype"] for case in cases))))
                or _NONE,
                " to ".join(map(str, sorted({*elements[:1], *elements[-1:]}))) or _NONE,
                most,
                *(_operation(each, most) for each in found),
            ]
        )
    header = ["Operation", "Element types", "Elements", "Cases", *by_check]
    return "\n".join(text.table(header, rows, right=["Cases"])) if rows else ""


def _operation(operation: Optional[results.Operation], most: int) -> str:
    """Return what one check says of an operation; ``most`` is the number of cases of any."""
    if operation is None:
        return _NONE
    words = [
        Markdown(f"**{kind}** on rank{'s' if len(by_rank) > 1 else ''} {', '.join(by_rank)}")
        for kind, by_rank in operation.faults.items()
    ] or ["ok"]
    if len(operation.cases) < most:
        words.append(f"only {len(operation.cases)} of {most} cases begun")
    if operation.slowest:
        rank, seconds = operation.slowest
        words.append(f"{duration(seconds)} (rank {rank})")
    return Markdown(", ".join(map(escape, words)))


def _bandwidth(report: RunReport) -> str:
    """Return the table of bandwidths with a column for each method; empty if there are none."""
    series = results.bandwidth(report.checks)
    rows: List[List[str]] = []
    for count in sorted({count for each in series for count in each.points}):
        points = [each.points.get(count) for each in series]
        rows.append([size(count), *map(_point, points)])
    header = ["Message size", *(each.label for each in series)]
    return "\n".join(text.table(header, rows, right=["Message size"])) if rows else ""


def _point(point: Optional[Mapping[str, Any]]) -> str:
    if point is None:
        return _NONE
    return f"{duration(point['seconds'])}, {figures(point['bus_mb_s'])} MB/s"


def tree(nodes: Sequence[DagNode]) -> List[str]:
    """Return the lines of the DAG as a tree: ``[e]`` for an external, the hash, and the node.

    A node is listed once, where a depth-first walk reaches it first, as in `spack spec`.
    """
    by_name: Dict[str, DagNode] = {}
    for node in nodes:
        by_name[node.name] = by_name[f"{node.name}/{node.hash}"] = node
    width = max((len(node.hash) for node in nodes), default=0)
    common = next(iter(architectures(nodes)), "")
    seen = set()

    def walk(node: DagNode, depth: int) -> Iterator[str]:
        if id(node) in seen:
            return
        seen.add(id(node))
        columns = ["[e]" if node.external else "   "]
        if width:
            columns.append(node.hash.ljust(width))
        columns.append("    " * depth + ("^" if depth else "") + _spec(node, common))
        yield "  ".join(columns)
        for name in node.depends_on:
            if name in by_name:
                yield from walk(by_name[name], depth + 1)

    needed = {id(by_name[name]) for node in nodes for name in node.depends_on if name in by_name}
    roots = [node for node in nodes if id(node) not in needed]
    return [line for root in roots for line in walk(root, 0)]


def _spec(node: DagNode, common: str) -> str:
    """Return the node as a spec; ``common`` is the architecture that is not repeated."""
    words = [f"{node.name}@{node.version}" if node.version else node.name, node.variants]
    if node.architecture and node.architecture != common:
        words.append(f"arch={node.architecture}")
    if node.external and node.prefix:
        words.append(f"({node.prefix})")
    return " ".join(filter(None, words))


def architectures(nodes: Sequence[DagNode]) -> List[str]:
    """Return the architectures that occur, the most frequent one first."""
    counter = collections.Counter(node.architecture for node in nodes if node.architecture)
    return sorted(counter, key=lambda name: (-counter[name], name))
