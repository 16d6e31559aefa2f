"""The report for continuous integration: JUnit's XML, as Jenkins and GitLab read it.

It has a test suite for each stage and each check, and test cases for their steps and operations.
"""

from __future__ import annotations

import io
import itertools

import junitparser

from hvd.report import verdict
from hvd.report.run_report import RunReport
from hvd.report.text import plain


def render(report: RunReport) -> bytes:
    """Return ``junit.xml`` of ``report``."""
    title = f"hvd {report.environment} {report.engine}"
    xml = junitparser.JUnitXml(title)
    for path, cases in itertools.groupby(verdict.cases(report), key=lambda case: case.suite):
        suite = junitparser.TestSuite(plain(": ".join(path)))
        suite.timestamp = report.started
        # Jenkins and GitLab identify a test case by its class name and name.
        classname = ".".join(["hvd", report.environment, report.engine, *path])
        for case in cases:
            suite.add_testcase(_test_case(case, plain(classname)))
        xml.add_testsuite(suite)
    xml.update_statistics()
    buffer = io.BytesIO()
    xml.write(buffer, pretty=True)
    return buffer.getvalue()


def _test_case(case: verdict.Case, classname: str) -> junitparser.TestCase:
    made = junitparser.TestCase(plain(case.name), classname, round(case.seconds, 6))
    log = [f"log: {case.log}"] if case.log else []
    if case.failures:
        # XML turns the line breaks of an attribute into blanks.
        failure = junitparser.Failure(plain(case.failures[0]).strip().partition("\n")[0])
        failure.text = plain("\n".join([*case.failures, *log]))
        made.result = [failure]
    elif case.skipped is not None:
        made.result = [junitparser.Skipped(plain(case.skipped))]
    elif log:
        made.system_out = plain(log[0])
    return made
