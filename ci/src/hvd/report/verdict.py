"""The outcome of a run: what passed, what failed and why, in order; as JUnit's XML, too."""

from __future__ import annotations

import itertools
from typing import Iterator, List, NamedTuple, Optional, Sequence

import junitparser

from hvd.report import RunReport
from hvd.report.text import duration, plain, plural


class Case(NamedTuple):
    """A step, a check of the smoke test, or a stage that failed without a step."""

    stage: str
    name: str
    seconds: float = 0.0
    failures: Sequence[str] = ()  #: the cause first; empty if it did not fail
    skipped: Optional[str] = None  #: why it was skipped; None if it was not
    log: Optional[str] = None


def cases(report: RunReport) -> Iterator[Case]:
    """Yield the cases of a run in its order."""
    for stage in report.stages:
        failed = stage.status == "failed"
        for step in stage.steps if stage.name != "smoke" or not report.checks else ():
            broken = step.status == "failed"
            failures = [step.detail or "no reason given"] if broken and failed else []
            # a step may fail and the stage go on without it
            skipped = step.detail if step.status == "skipped" or (broken and not failed) else None
            yield Case(stage.name, step.name, step.seconds, failures, skipped, step.log)
        if failed and not any(step.status == "failed" for step in stage.steps):
            failures = ["the stage failed, but none of its steps did"]
            yield Case(stage.name, stage.name, stage.seconds, failures)
    for check in report.checks:
        yield Case("smoke", check["name"], check["seconds"], check["failures"], log=check["log"])
    if not report.stages and not report.checks:
        yield Case("run", "run", failures=["nothing was run"])


def problems(report: RunReport) -> List[Case]:
    """Return the cases that failed; empty if the run passed."""
    return [case for case in cases(report) if case.failures]


def sentence(report: RunReport) -> str:
    """Return the outcome in one sentence."""
    found = problems(report)
    if found:
        others = sum(len(problem.failures) for problem in found) - 1
        more = f" (and {plural(others, 'more failure')}, below)" if others else ""
        return f"{found[0].stage}: {found[0].name} failed: {found[0].failures[0]}{more}"
    took = duration(sum(stage.seconds for stage in report.stages))
    stages = ", ".join(stage.name for stage in report.stages)
    tested = plural(len(report.checks), "check") if report.checks else "no check"
    return f"{stages} passed in {took}, with {tested} of the smoke test."


def junit(report: RunReport) -> bytes:
    """Return the report as Jenkins and GitLab read it: a suite for each stage."""
    run = f"{report.environment}.{report.engine}"
    xml = junitparser.JUnitXml(f"hvd {report.environment} {report.engine}")
    for stage, group in itertools.groupby(cases(report), key=lambda case: case.stage):
        suite = junitparser.TestSuite(stage)
        suite.timestamp = report.started
        for case in group:
            # Jenkins and GitLab identify a test case by its class name and name
            name = plain(case.name)
            made = junitparser.TestCase(name, f"hvd.{run}.{stage}", round(case.seconds, 6))
            if case.failures:
                failure = junitparser.Failure(plain(case.failures[0]))
                failure.text = plain("\n".join([*case.failures, f"log: {case.log}"]))
                made.result = [failure]
            elif case.skipped is not None:
                made.result = [junitparser.Skipped(plain(case.skipped))]
            suite.add_testcase(made)
        xml.add_testsuite(suite)
    xml.update_statistics()
    return xml.tostring()
