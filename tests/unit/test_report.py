"""A report of a run: its three files."""

from __future__ import annotations

import pathlib
import re
import xml.etree.ElementTree

import pytest

from hvd.core.errors import HvdError
from hvd.report import RunReport, page, text, verdict, write_report
from tests.unit.reports import fail_build, fail_check

NASTY = "\x1b[31mrank 1: a | b\n<b>*[`c`\\\x00```\x1b[0m"


def junit(report: RunReport) -> xml.etree.ElementTree.Element:
    return xml.etree.ElementTree.fromstring(verdict.junit(report))


def counts(report: RunReport) -> list:
    """Test cases, failures and skipped ones."""
    return [int(junit(report).get(key)) for key in ("tests", "failures", "skipped")]


def test_every_file_is_written_and_the_same_each_time(tmp_path, report) -> None:
    write_report(report, tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_report(report, tmp_path)
    assert first == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(first) == {"report.md", "report.json", "junit.xml"}
    assert RunReport.load(tmp_path / "report.json") == report


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff\xfe", b"[]", b"{}", b'{"stages": [{"status": "fine"}]}']
)
def test_a_damaged_file_is_an_error(tmp_path, content) -> None:
    path = tmp_path / "report.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HvdError, match="report.json"):
        RunReport.load(path)


def test_junit_has_a_case_for_each_step_and_check(report) -> None:
    root = junit(report)
    assert (root.tag, counts(report)) == ("testsuites", [5, 0, 1])
    assert [suite.get("name") for suite in root] == ["setup", "build", "smoke"]
    assert len({(c.get("classname"), c.get("name")) for c in root.iter("testcase")}) == 5
    fail_check(report, 0, "rank 1 died", "rank 0 was waiting")
    (failure,) = junit(report).iter("failure")
    assert failure.get("message") == "rank 1 died"
    assert failure.text.endswith("rank 0 was waiting\nlog: /logs/mpirun.txt")


def unrecorded_check(report: RunReport) -> None:
    """A check failed, and nobody told its step."""
    report.checks[1].update(passed=False, failures=["rank 1 died"])


@pytest.mark.parametrize(
    ("change", "failures"),
    [
        (lambda report: None, 0),
        (lambda report: fail_check(report, 1, "rank 1 died"), 1),
        (unrecorded_check, 1),
        (lambda report: fail_build(report), 1),
        # the step failed without a word
        (lambda report: fail_build(report, ""), 1),
        # the stage failed between two steps
        (lambda report: setattr(report.stages[1], "status", "failed"), 1),
        # the stage went on without the step
        (lambda report: setattr(report.stages[0].steps[0], "status", "failed"), 0),
        (lambda report: report.__dict__.update(stages=[], checks=[]), 1),
        # checks alone
        (lambda report: (unrecorded_check(report), setattr(report, "stages", [])), 1),
    ],
)
def test_the_verdict_is_the_same_in_every_format(tmp_path, report, change, failures) -> None:
    change(report)
    assert page.render(report, tmp_path).startswith("# FAILED" if failures else "# PASSED")
    assert counts(report)[1] == failures
    assert ("failed" in verdict.sentence(report)) == bool(failures)


def test_the_page_has_causes_results_and_packages(tmp_path, report) -> None:
    whole = page.render(report, tmp_path)
    assert "| allreduce sum | float32, int64 | ok, 4.00 ms | ok, 4.00 ms |" in whole
    assert re.search(r"\| mpirun \| horovod \| +1 KiB \| +1.00 ms \| 1.02 MB/s \| █{20} \|", whole)
    assert report.tree in whole and whole.count("process sets (not supported)") == 1
    report.checks[1]["operations"][0]["ok"]["1"] = False
    fail_check(report, 1, "rank 1: wrong result in allreduce sum")
    (tmp_path / "log.txt").write_text("[ 50%] Building\nfatal error: mpi.h\n")
    report.checks[1]["log"] = "log.txt"
    whole = page.render(report, tmp_path)
    assert "rank 1: wrong result in allreduce sum" in whole.splitlines()[2]
    assert "[log.txt](log.txt)" in whole and "fatal error: mpi.h\n" in whole
    assert "| ok, 4.00 ms | wrong or unfinished on rank 1, 4.00 ms |" in whole
    # alone in a world of its own, a rank is fast
    assert not re.search(r"\| horovodrun --gloo \| horovod \|", whole)


def test_a_nasty_message_breaks_neither_tables_nor_code_nor_xml(tmp_path, report) -> None:
    fail_build(report, NASTY)
    whole = page.render(report, tmp_path)
    (row,) = [line for line in whole.splitlines() if line.startswith("| build | py-horovod")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 8
    assert "\x1b" not in whole and "\x00" not in whole and "\n````text\n" in whole
    (failure,) = junit(report).iter("failure")
    assert "<b>*[`c`\\\N{REPLACEMENT CHARACTER}" in failure.text


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 µs"), (9.999e-4, "1.00 ms"), (9.999, "10.0 s"), (59.96, "1 min 00 s"),
     (5025, "1 h 23 min")],
)  # fmt: skip
def test_durations(seconds, shown) -> None:
    assert text.duration(seconds) == shown


def test_links_are_relative_to_what_is_archived_together(tmp_path: pathlib.Path) -> None:
    reports = tmp_path / "reports" / "local-hvd"
    assert text.link(tmp_path / "logs" / "a b", reports) == "[../../logs/a b](../../logs/a%20b)"
    assert text.link("/elsewhere/a", reports) == "[/elsewhere/a](/elsewhere/a)"
