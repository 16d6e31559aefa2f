"""The report for people, in Markdown that reads well as plain text, too."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Iterator, List

from hvd.core import process
from hvd.report import RunReport, text, verdict


def render(report: RunReport, directory: pathlib.Path) -> str:
    """Return ``report.md`` for ``directory``."""
    steps = [(stage.name, step) for stage in report.stages for step in stage.steps]
    return text.render(
        "report/report.md.j2",
        report=report,
        problems=verdict.problems(report),
        sentence=verdict.sentence(report),
        steps=steps,
        longest=max((step.seconds for _, step in steps), default=0),
        checks=[check["name"] for check in report.checks if check["operations"]],
        operations=list(_operations(report)),
        bandwidth=list(_bandwidth(report)),
        link=lambda path, shown="": text.link(path, directory, shown),
        tail=lambda log: process.tail(directory / log),
    )


def _operations(report: RunReport) -> Iterator[List[str]]:
    """Yield a row for each operation, with what each check says of it."""
    checks = [check["operations"] for check in report.checks if check["operations"]]
    for name in dict.fromkeys(row["operation"] for rows in checks for row in rows):
        every = [[row for row in rows if row["operation"] == name] for rows in checks]
        types = dict.fromkeys(row["dtype"] or "" for rows in every for row in rows)
        yield [name, ", ".join(filter(None, types)), *map(_operation, every)]


def _operation(rows: List[Dict[str, Any]]) -> str:
    """Return what one check says of an operation: the ranks at fault, and the slowest's time."""
    if not rows:
        return ""
    wrong = sorted({rank for row in rows for rank, ok in row["ok"].items() if not ok})
    verdict = f"wrong or unfinished on rank {', '.join(wrong)}" if wrong else "ok"
    ranks = {rank for row in rows for rank in row["seconds"]}
    spent = (sum(row["seconds"].get(rank) or 0.0 for row in rows) for rank in ranks)
    return f"{verdict}, {text.duration(max(spent))}"


def _bandwidth(report: RunReport) -> Iterator[List[str]]:
    """Yield a row for each method and size, of the checks that passed: alone, a rank is fast."""
    shown = [check for check in report.checks if not check["failures"]]
    most = max((row["bus_mb_s"] for check in shown for row in check["bandwidth"]), default=0)
    for check in shown:
        for row in sorted(check["bandwidth"], key=lambda row: (row["method"], row["bytes"])):
            time, rate = text.duration(row["seconds"]), f"{text.figures(row['bus_mb_s'])} MB/s"
            bar = text.bar(row["bus_mb_s"], most)
            yield [check["name"], row["method"], text.size(row["bytes"]), time, rate, bar]
