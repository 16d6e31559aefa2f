"""What is made of a report: Markdown, JUnit's XML and pictures."""

from __future__ import annotations

import copy
import re
import struct
import xml.etree.ElementTree
from typing import Any, Dict

import pytest

import hvd.report.junit
import hvd.report.markdown
from hvd.core.errors import HvdError
from hvd.core.steps import Stage, Step
from hvd.model.dag import DagNode
from hvd.report import RunReport, write_report

NASTY = "rank 1: a | b\n\x1b[31m<b>*[`c`\\\x00\x1b[0m"
LAUNCHERS = ("mpirun", "horovodrun --gloo")


def check(name: str, **values: Any) -> Dict[str, Any]:
    """A check as the smoke test returns it."""
    return {
        "name": name,
        "passed": not values.get("failures"),
        "seconds": 2.5,
        "failures": [],
        "log": f"/logs/{name}.txt",
        "operations": [],
        "bandwidth": [],
        "details": {},
        **values,
    }


def operation(name: str, dtype: str, elements: int) -> Dict[str, Any]:
    return {
        "operation": name,
        "dtype": dtype,
        "elements": elements,
        "seconds": {"0": 0.001, "1": 0.002},
        "ok": {"0": True, "1": True},
    }


def launcher(name: str) -> Dict[str, Any]:
    return check(
        name,
        operations=[
            operation("allreduce sum", "float32", 1),
            operation("allreduce sum", "float32", 1000),
            operation("allreduce sum", "int64", 1),
            operation("broadcast", "int64", 77),
        ],
        bandwidth=[
            {"method": method, "bytes": 4 * 16**n, "seconds": 1e-3, "bus_mb_s": 4e-3 * 16**n}
            for method in ("horovod", "mpi4py")
            for n in range(3)
        ],
        details={
            "mpi_libraries": ["/usr/lib/libmpi.so"],
            "left_out": [{"operation": "reductions", "dtype": "int8", "reason": "not supported"}],
        },
    )


@pytest.fixture
def report() -> RunReport:
    """A run that passed."""
    return RunReport(
        environment="local-hvd",
        engine="spack",
        started="2026-01-31T08:15:00Z",
        specs=["py-horovod@0.28.1 +mpi"],
        versions={"Horovod": "0.28.1"},
        host={"cores": 2, "memory": 8 * 2**30},
        dag=[DagNode("py-horovod", "0.28.1", depends_on=["openmpi"]), DagNode("openmpi", "4.1.8")],
        stages=[
            Stage("setup", "cached", 1.0, [Step("externals", "cached", 1.0)]),
            Stage("build", "ok", 60.0, [Step("py-cffi", "skipped"), Step("py-horovod", "ok", 59)]),
            Stage("smoke", "ok", 5.0, [Step(name) for name in LAUNCHERS]),
        ],
        checks=[launcher(name) for name in LAUNCHERS],
    )


def fail_build(report: RunReport, detail: str = "cmake exited with status 1") -> Step:
    """Make the build of py-horovod fail; return its step."""
    report.stages = report.stages[:2]
    report.checks = []
    step = report.stages[1].steps[1]
    report.stages[1].status = step.status = "failed"
    step.detail = detail
    return step


def fail_check(report: RunReport, place: int, *failures: str) -> Dict[str, Any]:
    """Make a check fail, and with it its step and the stage; return the check."""
    report.stages[-1].status = report.stages[-1].steps[place].status = "failed"
    report.checks[place].update(passed=False, failures=list(failures))
    return report.checks[place]


def markdown(report: RunReport, directory) -> str:
    return hvd.report.markdown.render(report, directory)


def junit(report: RunReport) -> xml.etree.ElementTree.Element:
    return xml.etree.ElementTree.fromstring(hvd.report.junit.render(report))


def counts(root: xml.etree.ElementTree.Element) -> tuple:
    return tuple(int(root.get(key)) for key in ("tests", "failures", "skipped"))


def cells(text: str, first: str) -> list:
    """The cells of the last table row whose first cell is ``first``."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line[:1] == "|"]
    found = [row for row in rows if row[0].strip() == first]
    return [cell.strip() for cell in found[-1]]


def section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


# Files


def test_every_file_is_written_and_the_same_each_time(tmp_path, report):
    written = write_report(report, tmp_path / "new")
    names = ["report.md", "report.json", "junit.xml", "bandwidth.png", "timings.png"]
    assert [path.name for path in written] == names
    first = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert sorted(first) == sorted(names)
    assert RunReport.load(tmp_path / "new" / "report.json") == report
    assert first == {path.name: path.read_bytes() for path in write_report(report, tmp_path)}


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path, report):
    (tmp_path / "file").write_text("")
    with pytest.raises(HvdError, match="file/report"):
        write_report(report, tmp_path / "file" / "report")


# Verdict


def test_a_run_that_passed(tmp_path, report):
    text = markdown(report, tmp_path)
    assert text.startswith("# PASSED: local-hvd, built by spack\n")
    assert "all 2 checks of the smoke test in 1 min 06 s" in text.splitlines()[2]
    assert "FAILED" not in text and not section(text, "Failures")


def test_a_failed_check_is_named_with_its_cause_and_log(tmp_path, report):
    fail_check(report, 1, "rank 1 died in allreduce sum", "rank 0 was waiting")
    text = markdown(report, tmp_path)
    assert text.startswith("# FAILED: ")
    assert "horovodrun --gloo failed: rank 1 died in allreduce sum (and 1 " in text.splitlines()[2]
    failures = section(text, "Failures")
    assert failures.count("###") == 1
    assert "rank 1 died in allreduce sum\nrank 0 was waiting\n" in failures
    assert "/logs/horovodrun%20--gloo.txt" in failures
    assert [cells(section(text, "Smoke test"), name)[1] for name in LAUNCHERS] == [
        "ok",
        "**failed**",
    ]


def test_a_failed_build_is_named_with_the_step_and_the_end_of_its_log(tmp_path, report):
    (tmp_path / "build.log").write_text("[ 50%] Building\nfatal error: mpi.h\n")
    fail_build(report).log = "build.log"
    text = markdown(report, tmp_path)
    assert text.startswith("# FAILED: ")
    assert text.splitlines()[2] == "build: py-horovod failed: cmake exited with status 1"
    assert "[build.log](build.log)" in text
    assert "[ 50%] Building\nfatal error: mpi.h\n" in text
    assert counts(junit(report)) == (3, 1, 1)


def fail_outside_steps(report: RunReport) -> None:
    report.stages[1].status = "failed"


def fail_step_of_a_stage_that_went_on(report: RunReport) -> None:
    report.stages[0].steps[0].status = "failed"


def run_nothing(report: RunReport) -> None:
    report.stages, report.checks = [], []


@pytest.mark.parametrize(
    "change, verdict, failures",
    [
        (fail_outside_steps, "FAILED", 1),
        (fail_step_of_a_stage_that_went_on, "PASSED", 0),
        (run_nothing, "FAILED", 1),
    ],
)
def test_the_verdict_is_the_same_in_markdown_and_junit(
    tmp_path, report, change, verdict, failures
):
    change(report)
    assert markdown(report, tmp_path).startswith(f"# {verdict}: ")
    assert counts(junit(report))[1] == failures


def test_a_run_without_checks_does_not_claim_any(tmp_path, report):
    report.checks = []
    text = markdown(report, tmp_path)
    assert "went through setup, build, smoke in 1 min 06 s; no smoke test" in text


# Tables


def test_operations_are_grouped_by_name(tmp_path, report):
    row = cells(markdown(report, tmp_path), "allreduce sum")
    assert row[1:5] == ["float32, int64", "1 to 1000", "3", "ok, 6.00 ms (rank 1)"]


def test_a_wrong_and_an_unfinished_operation_name_their_ranks(tmp_path, report):
    report.checks[0]["operations"][1]["ok"]["1"] = False
    report.checks[1]["operations"][3]["ok"] = {"0": True}  # rank 1 did not begin it
    report.checks[1]["operations"][3]["seconds"] = {"0": 0.5}
    text = markdown(report, tmp_path)
    assert cells(text, "allreduce sum")[4].startswith("**wrong result** on rank 1, ")
    assert cells(text, "allreduce sum")[5].startswith("ok, ")
    assert cells(text, "broadcast")[5] == "**not finished** on rank 1, 500 ms (rank 0)"


def test_operations_that_were_not_reached_are_counted(tmp_path, report):
    del report.checks[1]["operations"][1:]
    text = markdown(report, tmp_path)
    assert "only 1 of 3 cases begun" in cells(text, "allreduce sum")[5]
    assert cells(text, "broadcast")[5] == "–"


def test_an_operation_that_no_rank_ended_has_no_time(tmp_path, report):
    hung = {**operation("barrier", None, None), "ok": {"0": None}, "seconds": {"0": None}}
    report.checks[0]["operations"] = [hung]
    text = markdown(report, tmp_path)
    assert cells(text, "barrier")[1:5] == ["–", "–", "1", "**not finished** on rank 0"]


def test_what_was_left_out_and_loaded_is_said_once(tmp_path, report):
    text = section(markdown(report, tmp_path), "Smoke test")
    assert text.count("reductions of int8 (not supported)") == 1
    assert "`/usr/lib/libmpi.so` loaded under mpirun, horovodrun --gloo." in text


def test_what_was_built_is_held_against_what_was_asked_for(tmp_path, report):
    rows = [
        ("version", "horovod", "0.28.1", "0.28.1"),
        ("frameworks", "pytorch", True, True),
        ("controllers", "mpi", True, False),
        ("operations", "nccl", True, None),
    ]
    keys = ("section", "item", "expected", "built")
    report.checks.append(
        check("check-build", details={"items": [dict(zip(keys, r)) for r in rows]})
    )
    text = section(markdown(report, tmp_path), "What Horovod was built with")
    assert [cells(text, row[0])[1:] for row in rows] == [
        ["horovod", "0.28.1", "0.28.1", "yes"],
        ["pytorch", "yes", "yes", "yes"],
        ["mpi", "yes", "no", "**no**"],
        ["nccl", "yes", "not listed", "**no**"],
    ]


def test_bandwidth_of_a_failed_check_is_not_shown(tmp_path, report):
    fail_check(report, 1, "rank 1 died")
    text = section(markdown(report, tmp_path), "Allreduce bandwidth")
    assert "failed: horovodrun --gloo." in text
    assert "| Message size | mpirun | mpi4py, mpirun |" in text
    assert cells(text, "1 KiB")[1:] == ["1.00 ms, 1.02 MB/s"] * 2


def test_a_size_that_one_method_lacks_is_shown_as_such(tmp_path, report):
    del report.checks[0]["bandwidth"][0]
    row = cells(section(markdown(report, tmp_path), "Allreduce bandwidth"), "4 B")
    assert row[1] == "–" and "–" not in row[2:]


def test_build_times_are_ratios(tmp_path, report):
    report.build_times = [{"engine": "spack", "seconds": 90, "ratio": 1.25, "note": "all"}]
    assert cells(markdown(report, tmp_path), "spack") == ["spack", "1 min 30 s", "1.25", "all"]


def test_a_nasty_message_breaks_neither_tables_nor_code(tmp_path, report):
    fail_build(report, NASTY)
    report.versions[NASTY] = NASTY
    text = markdown(report, tmp_path)
    shown = r"rank 1: a \| b<br>\<b>\*\[\`c\`\\" + "\N{REPLACEMENT CHARACTER}"
    assert cells(text, shown)[1] == shown
    (row,) = [line for line in text.splitlines() if line.startswith("| build | py-horovod")]
    assert f"| {shown} |" in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 7
    assert "\x1b" not in text and "\x00" not in text


def test_a_fence_is_longer_than_the_backticks_within(tmp_path, report):
    fail_check(report, 0, "```\n# PASSED")
    assert "\n````text\n```\n# PASSED\n````\n" in markdown(report, tmp_path)


# JUnit


def test_junit_counts_steps_checks_and_operations(report):
    root = junit(report)
    assert root.tag == "testsuites"
    # 5 steps; each launcher and its 2 operations
    assert counts(root) == (11, 0, 1)
    names = [suite.get("name") for suite in root]
    assert names == ["setup", "build", "smoke", "smoke: mpirun", "smoke: horovodrun --gloo"]
    mpirun = root[3]
    assert [case.get("name") for case in mpirun] == ["mpirun", "allreduce sum", "broadcast"]
    assert float(mpirun.get("time")) == pytest.approx(2.5)
    assert float(mpirun[1].get("time")) == pytest.approx(0.006)
    everyone = [(c.get("classname"), c.get("name")) for c in root.iter("testcase")]
    assert len(set(everyone)) == len(everyone)


def test_junit_names_a_failure_and_its_log(report):
    failed = fail_check(report, 0, "rank 1 died\nfor good", "rank 0 was waiting")
    failed["operations"][1]["ok"]["1"] = False
    root = junit(report)
    assert counts(root) == (11, 3, 1)
    step, whole, allreduce = root.iter("failure")
    assert whole.get("message") == "rank 1 died"
    assert whole.text == "rank 1 died\nfor good\nrank 0 was waiting\nlog: /logs/mpirun.txt"
    assert allreduce.get("message") == "rank 1: wrong result in float32 x 1000"
    assert allreduce.text.endswith("log: /logs/mpirun.txt")


def test_junit_survives_what_xml_cannot_hold(report):
    fail_build(report, NASTY)
    (failure,) = junit(report).iter("failure")
    assert failure.get("message") == "rank 1: a | b"
    assert "<b>*[`c`\\\N{REPLACEMENT CHARACTER}" in failure.text


# Pictures


def dimensions(path) -> tuple:
    """Width and height of a PNG, from its header."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and content[12:16] == b"IHDR"
    assert content[-8:-4] == b"IEND"
    return struct.unpack(">II", content[16:24])


def test_pictures_are_of_their_size_and_linked(tmp_path, report):
    write_report(report, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert dimensions(tmp_path / "bandwidth.png") == (800, 500)
    assert dimensions(tmp_path / "timings.png")[0] == 800
    assert "(bandwidth.png)" in text and "(timings.png)" in text


def test_the_picture_shows_the_data(tmp_path, report):
    write_report(report, tmp_path / "a")
    other = copy.deepcopy(report)
    other.checks[0]["bandwidth"][0]["bus_mb_s"] *= 100
    write_report(other, tmp_path / "b")
    pictures = [(tmp_path / name / "bandwidth.png").read_bytes() for name in "ab"]
    assert pictures[0] != pictures[1]


def test_without_data_there_is_no_picture_nor_a_stale_one(tmp_path, report):
    write_report(report, tmp_path)
    for check in report.checks:
        check["bandwidth"] = []
    report.stages = [Stage("smoke", "ok", 0.0)]
    written = write_report(report, tmp_path)
    assert not [path for path in written if path.suffix == ".png"]
    assert not list(tmp_path.glob("*.png"))
    assert ".png" not in (tmp_path / "report.md").read_text()


def test_one_rank_has_no_bus_bandwidth(tmp_path, report):
    for check in report.checks:
        for row in check["bandwidth"]:
            row["bus_mb_s"] = 0.0
    write_report(report, tmp_path)
    assert not (tmp_path / "bandwidth.png").exists()
