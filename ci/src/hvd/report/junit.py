"""The report for continuous integration: JUnit's XML, as Jenkins and GitLab read it.

A test suite per stage and per check; in them a test case per step, per check, and per
operation of each launcher.
"""

from __future__ import annotations

import io
from typing import Iterable, List, Optional

import junitparser

from hvd.core.steps import Stage, Step
from hvd.report import checks
from hvd.report.model import RunReport
from hvd.report.text import plain
from hvd.report.verdict import Problem, problems


def render(report: RunReport) -> bytes:
    """``junit.xml`` of ``report``."""
    xml = junitparser.JUnitXml(f"hvd {report.environment} {report.engine}")
    for stage in report.stages:
        _add_suite(xml, report, stage.name, _stage_cases(report, stage))
    for check in report.checks:
        _add_suite(xml, report, f"smoke: {checks.name(check)}", _check_cases(report, check))
    if not report.stages and not report.checks:
        case = _case(report, "run", "run", 0.0)
        case.result = [_failure(problem) for problem in problems(report)]
        _add_suite(xml, report, "run", [case])
    xml.update_statistics()
    buffer = io.BytesIO()
    xml.write(buffer, pretty=True)
    return buffer.getvalue()


def _add_suite(
    xml: junitparser.JUnitXml,
    report: RunReport,
    name: str,
    cases: Iterable[junitparser.TestCase],
) -> None:
    suite = junitparser.TestSuite(plain(name))
    suite.timestamp = report.started
    for case in cases:
        suite.add_testcase(case)
    if len(suite):
        xml.add_testsuite(suite)


def _case(report: RunReport, suite: str, name: str, seconds: float) -> junitparser.TestCase:
    # Both readers tell test cases of several runs apart by class name and name.
    classname = f"hvd.{report.environment}.{report.engine}.{suite}"
    return junitparser.TestCase(plain(name), plain(classname), round(seconds, 6))


def _stage_cases(report: RunReport, stage: Stage) -> List[junitparser.TestCase]:
    cases = [_step_case(report, stage, step) for step in stage.steps]
    blamed = any(step.status == "failed" for step in stage.steps)
    own = [problem for problem in problems(report) if problem.where == stage.name]
    if (own and not blamed) or (not stage.steps and stage.name != "smoke"):
        case = _case(report, stage.name, stage.name, stage.seconds)
        case.result = [_failure(problem) for problem in own]
        if stage.status == "skipped":
            case.result = [junitparser.Skipped()]
        cases.append(case)
    return cases


def _step_case(report: RunReport, stage: Stage, step: Step) -> junitparser.TestCase:
    case = _case(report, stage.name, step.name, step.seconds)
    detail = plain(step.detail)
    if step.status == "skipped":
        case.result = [junitparser.Skipped(detail)]
    elif step.status == "failed" and stage.status == "failed":
        case.result = [_failure(Problem("", [step.detail or "no reason given"], step.log))]
    elif step.status == "failed":
        case.result = [junitparser.Skipped(f"failed, and the stage went on without it: {detail}")]
    elif step.log:
        case.system_out = f"log: {plain(step.log)}"
    return case


def _check_cases(report: RunReport, check: checks.Check) -> List[junitparser.TestCase]:
    suite = f"smoke.{checks.name(check)}"
    log: Optional[str] = check.get("log")
    operations = checks.operations(check)
    # A suite's time is the sum of its cases', so the check itself has what is left.
    spent = [each.slowest[1] if each.slowest else 0.0 for each in operations]
    rest = max(0.0, float(check.get("seconds") or 0.0) - sum(spent))
    whole = _case(report, suite, checks.name(check), rest)
    messages = checks.failures(check)
    if messages:
        whole.result = [_failure(Problem("", messages, log))]
    elif log:
        whole.system_out = f"log: {plain(log)}"
    cases = [whole]
    for operation, seconds in zip(operations, spent):
        case = _case(report, suite, operation.name, seconds)
        if not operation.ok:
            case.result = [_failure(Problem("", _complaints(operation), log))]
        cases.append(case)
    return cases


def _complaints(operation: checks.Operation) -> List[str]:
    found = []
    for verdict, by_rank in (
        ("wrong result", operation.wrong),
        ("not finished", operation.unfinished),
    ):
        for rank, cases in by_rank.items():
            which = ", ".join(case for case in cases if case)
            found.append(f"rank {rank}: {verdict}" + (f" in {which}" if which else ""))
    return found or ["no rank reported a result"]


def _failure(problem: Problem) -> junitparser.Failure:
    # One line: XML turns the line breaks of an attribute into blanks.
    failure = junitparser.Failure(plain(problem.messages[0]).strip().partition("\n")[0])
    lines = [*problem.messages, *([f"log: {problem.log}"] if problem.log else [])]
    failure.text = plain("\n".join(lines))
    return failure
