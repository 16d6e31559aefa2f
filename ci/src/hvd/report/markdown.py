"""The report for people, in Markdown that reads well as plain text, too."""

from __future__ import annotations

import pathlib
from typing import Dict, List, Optional, Sequence, Tuple

from hvd.core import process
from hvd.report import checks, dag
from hvd.report.model import RunReport
from hvd.report.text import (
    Markdown,
    code,
    duration,
    escape,
    fenced,
    figures,
    link,
    plural,
    size,
    table,
)
from hvd.report.verdict import problems, sentence

_NONE = "–"


def render(report: RunReport, directory: pathlib.Path, pictures: Sequence[str] = ()) -> str:
    """``report.md`` of ``report``.

    Args:
        report: what to show.
        directory: where the file will be; links are relative to it.
        pictures: names of the pictures next to it, of ``bandwidth.png`` and ``timings.png``.
    """
    lines = [
        *_headline(report),
        *_failures(report, directory),
        *_versions(report),
        *_provenance(report, directory),
        *_stages(report, directory, pictures),
        *_checks(report, directory),
        *_build_items(report),
        *_operations(report),
        *_bandwidth(report, pictures),
        *_build_times(report),
        *_dag(report),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _headline(report: RunReport) -> List[str]:
    verdict = "FAILED" if problems(report) else "PASSED"
    return [
        f"# {verdict}: {escape(report.environment)}, built by {escape(report.engine)}",
        "",
        escape(sentence(report)),
        "",
        f"Started {escape(report.started)}.",
        "",
    ]


def _failures(report: RunReport, directory: pathlib.Path) -> List[str]:
    lines: List[str] = []
    for problem in problems(report):
        lines += [f"### {escape(problem.where)}", ""]
        # As code: nothing in a compiler's or a launcher's words is markup.
        lines += [fenced("\n".join(message.strip() for message in problem.messages)), ""]
        if problem.log:
            lines += [f"Log: {link(problem.log, directory)}", ""]
            end = process.tail(directory / problem.log)
            lines += ["It ends with:", "", fenced(end), ""] if end else []
    return ["## Failures", "", *lines] if lines else []


def _versions(report: RunReport) -> List[str]:
    lines = ["## What was built, and where", ""]
    lines += [f"- {code(spec)}" for spec in report.specs]
    lines += [""] if report.specs else []
    if report.versions:
        lines += table(["Package", "Version"], report.versions.items())
    if report.host:
        rows = [(key, _host_value(key, value)) for key, value in report.host.items()]
        lines += table(["Machine", ""], rows)
    return lines if len(lines) > 2 else []


def _provenance(report: RunReport, directory: pathlib.Path) -> List[str]:
    rows = [(name, code(commit)) for name, commit in report.commits.items()]
    lines = table(["Made with", "Commit"], [(a, Markdown(b)) for a, b in rows]) if rows else []
    if report.bom:
        lines += [f"All that is in it: {link(report.bom, directory)}, a CycloneDX document.", ""]
    return lines


def _host_value(key: str, value: object) -> object:
    return size(value) if key == "memory" and isinstance(value, (int, float)) else value


def _stages(report: RunReport, directory: pathlib.Path, pictures: Sequence[str]) -> List[str]:
    if not report.stages:
        return []
    rows = [(s.name, s.status, duration(s.seconds), len(s.steps) or _NONE) for s in report.stages]
    lines = ["## Stages", ""]
    lines += table(["Stage", "Status", "Time", "Steps"], rows, right=("Time", "Steps"))
    lines += _picture("timings.png", "Wall time by step", pictures)
    steps = [
        (
            stage.name,
            step.name,
            step.status,
            duration(step.seconds),
            step.detail,
            link(step.log, directory, "log") if step.log else "",
        )
        for stage in report.stages
        for step in stage.steps
    ]
    if steps:
        header = ["Stage", "Step", "Status", "Time", "Detail", "Log"]
        lines += table(header, steps, right=("Time",))
    return lines


def _checks(report: RunReport, directory: pathlib.Path) -> List[str]:
    if not report.checks:
        return []
    rows = [
        (
            checks.name(check),
            "ok" if checks.passed(check) else Markdown("**failed**"),
            duration(check["seconds"]) if check.get("seconds") is not None else _NONE,
            len(checks.ranks(check)) or _NONE,
            len(check.get("operations") or []) or _NONE,
            link(check["log"], directory, "log") if check.get("log") else "",
        )
        for check in report.checks
    ]
    lines = ["## Smoke test", ""]
    header = ["Check", "Verdict", "Time", "Ranks", "Cases", "Log"]
    lines += table(header, rows, right=("Time", "Ranks", "Cases"))
    lines += [
        f"- Horovod had {code(library)} loaded under {escape(', '.join(launchers))}."
        for library, launchers in checks.mpi_libraries(report.checks).items()
    ]
    lines += [
        f"- Left out: {escape(f'{operation} of {dtype}' if dtype else operation)}"
        + (f" ({escape(reason)})." if reason else ".")
        for operation, dtype, reason in checks.left_out(report.checks)
    ]
    return [*lines, ""] if lines[-1] else lines


def _build_items(report: RunReport) -> List[str]:
    rows = [
        (
            item.section,
            item.item,
            _yes_no(item.expected),
            "not listed" if item.built is None else _yes_no(item.built),
            "yes" if item.agrees else Markdown("**no**"),
        )
        for check in report.checks
        for item in checks.built_items(check)
    ]
    if not rows:
        return []
    lines = ["## What Horovod was built with", ""]
    lines += ["As `horovodrun --check-build` lists it.", ""]
    return lines + table(["Section", "Item", "Asked for", "Built", "Agrees"], rows)


def _yes_no(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def _operations(report: RunReport) -> List[str]:
    by_check = {
        checks.name(check): {each.name: each for each in checks.operations(check)}
        for check in report.checks
        if check.get("operations")
    }
    if not by_check:
        return []
    names = checks.unique(name for found in by_check.values() for name in found)
    rows = [_operation_row(name, list(by_check.values())) for name in names]
    text = (
        "Results of collectives were compared with NumPy's on every rank. A case is an element"
        " type and a number of elements per rank; the time is that of all cases together on the"
        " slowest rank, which is named behind it."
    )
    header = ["Operation", "Element types", "Elements", "Cases", *by_check]
    return ["## Operations", "", text, "", *table(header, rows, right=("Cases",))]


def _operation_row(name: str, found: Sequence[Dict[str, checks.Operation]]) -> List[object]:
    operations = [each.get(name) for each in found]
    known = [each for each in operations if each]
    cases = max(each.cases for each in known)
    ranges = [each.elements for each in known if each.elements]
    dtypes = checks.unique(dtype for each in known for dtype in each.dtypes)
    return [
        name,
        ", ".join(dtypes) or _NONE,
        _range(min(r[0] for r in ranges), max(r[1] for r in ranges)) if ranges else _NONE,
        cases,
        *(_operation_cell(each, cases) for each in operations),
    ]


def _range(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"


def _operation_cell(operation: Optional[checks.Operation], cases: int) -> str:
    if operation is None:
        return _NONE
    words = ["ok"] if operation.ok else []
    for verdict, by_rank in (("wrong", operation.wrong), ("not finished", operation.unfinished)):
        if by_rank:
            words.append(Markdown(f"**{verdict}** on {_ranks(by_rank)}"))
    if operation.cases < cases:
        words.append(f"only {operation.cases} of {cases} cases begun")
    if operation.slowest:
        rank, seconds = operation.slowest
        words.append(f"{duration(seconds)} (rank {rank})")
    return Markdown(", ".join(escape(word) for word in words) or _NONE)


def _ranks(by_rank: Dict[str, List[str]]) -> str:
    return f"rank{'s' if len(by_rank) > 1 else ''} {', '.join(by_rank)}"


def _bandwidth(report: RunReport, pictures: Sequence[str]) -> List[str]:
    series = checks.bandwidth(report.checks)
    if not series:
        return []
    cells: List[Dict[float, checks.Point]] = [{p.bytes: p for p in s.points} for s in series]
    sizes = sorted({count for each in cells for count in each})
    rows = [(size(n), *(_point(each.get(n)) for each in cells)) for n in sizes]
    text = (
        "Sum of float32, S bytes per rank, over n ranks, in t seconds on the slowest rank."
        " Shown are t and the bus bandwidth 2 (n − 1) / n · S / t; 1 MB is 10⁶ bytes."
    )
    labels = [each.label for each in series]
    header = ["Message size", *labels]
    lines = ["## Allreduce bandwidth", "", text, ""]
    lines += table(header, rows, right=("Message size",))
    hidden = [
        checks.name(check)
        for check in report.checks
        if check.get("bandwidth") and not checks.passed(check)
    ]
    if hidden:
        lines += [f"Left out because the check failed: {escape(', '.join(hidden))}.", ""]
    return lines + _picture("bandwidth.png", "Bus bandwidth over message size", pictures)


def _point(point: Optional[checks.Point]) -> str:
    return f"{duration(point.seconds)}, {figures(point.mb_s)} MB/s" if point else _NONE


def _build_times(report: RunReport) -> List[str]:
    if not report.build_times:
        return []
    rows = [_build_time_row(row) for row in report.build_times]
    header = ["Built by", "Time", "Over plain pip", "Note"]
    return ["## Build times", "", *table(header, rows, right=("Time", "Over plain pip"))]


def _build_time_row(row: Dict[str, object]) -> Tuple[object, ...]:
    seconds, ratio = row.get("seconds"), row.get("ratio")
    return (
        row.get("engine") or _NONE,
        duration(seconds) if isinstance(seconds, (int, float)) else _NONE,
        f"{ratio:.2f}" if isinstance(ratio, (int, float)) else _NONE,
        row.get("note") or "",
    )


def _dag(report: RunReport) -> List[str]:
    if not report.dag:
        return []
    externals = sum(node.external for node in report.dag)
    of_them = f", {externals} of them external, marked `[e]`" if externals else ", none external"
    architectures = dag.architectures(report.dag)
    on = f", for {architectures[0]} unless said otherwise" if architectures else ""
    text = (
        f"{plural(len(report.dag), 'package')}{of_them}{on}."
        " Each stands once, where the tree first reaches it."
    )
    return ["## Concretized DAG", "", text, "", fenced("\n".join(dag.tree(report.dag)))]


def _picture(name: str, text: str, pictures: Sequence[str]) -> List[str]:
    return [f"![{text}]({name})", ""] if name in pictures else []
