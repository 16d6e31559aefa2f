"""A report: its file, and the Markdown, JUnit's XML and pictures that are made of it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import struct
import xml.etree.ElementTree
from typing import Any, Dict

import pytest

from hvd.core.errors import HvdError
from hvd.core.steps import Stage, Step
from hvd.model.solution import DagNode
from hvd.report import RunReport, junit, markdown, plot, write_report
from hvd.report.markdown import tree
from hvd.report.run_report import SCHEMA

NASTY = "\x1b[31mrank 1: a | b\n<b>*[`c`\\\x00\x1b[0m"
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


@pytest.fixture
def text(report, tmp_path):
    """A function that returns the report, or a section of it, as Markdown."""

    def render(title: str = "") -> str:
        whole = markdown.render(report, tmp_path)
        return whole.partition(f"\n## {title}\n")[2].partition("\n## ")[0] if title else whole

    return render


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


def parsed(report: RunReport) -> xml.etree.ElementTree.Element:
    """``junit.xml`` of a report."""
    return xml.etree.ElementTree.fromstring(junit.render(report))


def counts(root: xml.etree.ElementTree.Element) -> tuple:
    return tuple(int(root.get(key)) for key in ("tests", "failures", "skipped"))


def cells(text: str, first: str) -> list:
    """The cells of the last table row whose first cell is ``first``."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line[:1] == "|"]
    found = [row for row in rows if row[0].strip() == first]
    return [cell.strip() for cell in found[-1]]


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


def test_a_path_is_saved_as_its_name(tmp_path, report):
    report.checks = [check("mpirun", log=pathlib.Path("/logs/mpirun"))]
    report.save(tmp_path / "report.json")
    assert RunReport.load(tmp_path / "report.json").checks[0]["log"] == "/logs/mpirun"


@pytest.mark.parametrize(
    "content, key",
    [
        *(
            (content, "")
            for content in (None, b"", b'{"schema": 1', b"\xff\xfe\x00", b"[]", b"{}")
        ),
        ({"schema": SCHEMA + 1}, "schema"),
        ({"stages": [{"name": "build", "seconds": "long"}]}, "stages[0].seconds"),
        ({"stages": [{"name": "build", "status": "fine"}]}, "stages[0]"),
        ({"stages": [7]}, "stages[0]"),
    ],
)
def test_a_damaged_file_and_its_key_are_named(tmp_path, report, content, key):
    path = tmp_path / "report.json"
    report.save(path)
    if content is None:
        path.unlink()
    else:
        changed = isinstance(content, dict)
        whole = {**json.loads(path.read_bytes()), **content} if changed else None
        path.write_bytes(json.dumps(whole).encode() if changed else content)
    with pytest.raises(HvdError) as caught:
        RunReport.load(path)
    assert path.name in caught.value.message and key in caught.value.message
    assert "./hvd run" in caught.value.remedy


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path, report, monkeypatch, function):
    path = tmp_path / "report.json"
    report.save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(HvdError, match="report.json.*No space left on device"):
        RunReport("other", "spack", "now").save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]  # and no temporary file


# Verdict


def test_a_run_that_passed(report, text):
    assert text().startswith("# PASSED: local-hvd, built by spack\n")
    assert "all 2 checks of the smoke test in 1 min 06 s" in text().splitlines()[2]
    assert "FAILED" not in text() and not text("Failures")
    report.checks = []
    assert "went through setup, build, smoke in 1 min 06 s; no smoke test" in text()


def test_a_failed_check_is_named_with_its_cause_and_log(report, text):
    fail_check(report, 1, "rank 1 died in allreduce sum", "rank 0 was waiting")
    assert text().startswith("# FAILED: ")
    summary = text().splitlines()[2]
    assert "horovodrun --gloo failed: rank 1 died in allreduce sum (and 1 " in summary
    assert text("Failures").count("###") == 1
    assert "rank 1 died in allreduce sum\nrank 0 was waiting\n" in text("Failures")
    assert "/logs/horovodrun%20--gloo.txt" in text("Failures")
    verdicts = [cells(text("Smoke test"), name)[1] for name in LAUNCHERS]
    assert verdicts == ["ok", "**failed**"]


def test_a_failed_build_is_named_with_the_step_and_the_end_of_its_log(tmp_path, report, text):
    (tmp_path / "build.log").write_text("[ 50%] Building\nfatal error: mpi.h\n")
    fail_build(report).log = "build.log"
    assert text().startswith("# FAILED: ")
    assert text().splitlines()[2] == "build: py-horovod failed: cmake exited with status 1"
    assert "[build.log](build.log)" in text("Failures")
    assert "[ 50%] Building\nfatal error: mpi.h\n" in text("Failures")
    assert counts(parsed(report)) == (3, 1, 1)


@pytest.mark.parametrize(
    "change, verdict, failures",
    [
        (lambda report: setattr(report.stages[1], "status", "failed"), "FAILED", 1),
        # the stage went on without the step
        (lambda report: setattr(report.stages[0].steps[0], "status", "failed"), "PASSED", 0),
        (lambda report: report.__dict__.update(stages=[], checks=[]), "FAILED", 1),
    ],
)
def test_the_verdict_is_the_same_in_every_format(report, text, change, verdict, failures):
    change(report)
    assert text().startswith(f"# {verdict}: ")
    assert counts(parsed(report))[1] == failures


# Tables


def test_operations_are_grouped_by_name(report, text):
    row = cells(text("Operations"), "allreduce sum")
    assert row[1:5] == ["float32, int64", "1 to 1000", "3", "ok, 6.00 ms (rank 1)"]
    del report.checks[1]["operations"][1:]
    assert "only 1 of 3 cases begun" in cells(text("Operations"), "allreduce sum")[5]
    assert cells(text("Operations"), "broadcast")[5] == "–"


def test_faults_of_operations_name_their_ranks(report, text):
    wrong, unfinished = (check["operations"] for check in report.checks)
    wrong[1]["ok"]["1"] = False
    wrong.append({**operation("barrier", None, None), "ok": {"0": None}, "seconds": {"0": None}})
    unfinished[3].update(ok={"0": True}, seconds={"0": 0.5})  # rank 1 did not begin it
    row = cells(text("Operations"), "allreduce sum")
    assert row[4].startswith("**wrong result** on rank 1, ") and row[5].startswith("ok, ")
    row = cells(text("Operations"), "broadcast")
    assert row[5] == "**not finished** on rank 1, 500 ms (rank 0)"
    row = cells(text("Operations"), "barrier")
    assert row[1:] == ["–", "–", "1", "**not finished** on ranks 0, 1", "–"]


def test_libraries_and_what_was_left_out_are_listed_once(text):
    assert text("Smoke test").count("reductions of int8 (not supported)") == 1
    loaded = "Under mpirun, horovodrun --gloo, Horovod loaded `/usr/lib/libmpi.so`."
    assert loaded in text("Smoke test")


def test_built_items_are_compared_with_those_asked_for(report, text):
    rows = [
        ("version", "horovod", "0.28.1", "0.28.1"),
        ("frameworks", "pytorch", True, True),
        ("controllers", "mpi", True, False),
        ("operations", "nccl", True, None),
    ]
    items = [dict(zip(("section", "item", "expected", "built"), row)) for row in rows]
    report.checks.append(check("check-build", details={"items": items}))
    assert [cells(text("What Horovod was built with"), row[0])[1:] for row in rows] == [
        ["horovod", "0.28.1", "0.28.1", "yes"],
        ["pytorch", "yes", "yes", "yes"],
        ["mpi", "yes", "no", "**no**"],
        ["nccl", "yes", "not listed", "**no**"],
    ]


def test_bandwidth_of_a_failed_check_is_not_shown(report, text):
    fail_check(report, 1, "rank 1 died")
    del report.checks[0]["bandwidth"][0]
    table = text("Allreduce bandwidth")
    assert "failed: horovodrun --gloo." in table
    assert cells(table, "Message size")[1:] == ["mpirun", "mpi4py, mpirun"]
    assert cells(table, "1 KiB")[1:] == ["1.00 ms, 1.02 MB/s"] * 2
    assert cells(table, "4 B")[1:] == ["–", "1.00 ms, 0.00400 MB/s"]


def test_build_times_are_ratios(report, text):
    report.build_times = [{"engine": "spack", "seconds": 90, "ratio": 1.25, "note": "all"}]
    assert cells(text("Build times"), "spack")[1:] == ["1 min 30 s", "1.25", "all"]


def test_the_tree_shows_every_node_once_below_its_dependent():
    nodes = [
        DagNode("py-horovod", "0.28.1", "+mpi", "aaaaaaa", depends_on=["openmpi", "python"]),
        DagNode("openmpi", "4.1.8", "", "bbbbbbb", True, "/usr", ["glibc"], "linux-old"),
        DagNode("python", "3.11.7", "", "ccccccc", depends_on=["glibc"], architecture="linux"),
        DagNode("glibc", "2.36", "", "ddddddd", architecture="linux"),
    ]
    assert tree(nodes) == [
        "     aaaaaaa  py-horovod@0.28.1 +mpi",
        "[e]  bbbbbbb      ^openmpi@4.1.8 arch=linux-old (/usr)",
        "     ddddddd          ^glibc@2.36",
        "     ccccccc      ^python@3.11.7",
    ]
    # nodes of one name are told apart by hash
    twins = [DagNode("py-wheel", v, hash=f"{v}xxxxxx") for v in ("1", "2")]
    told = tree([DagNode("a", "1", depends_on=["py-wheel/2xxxxxx"]), *twins])
    names = ["a@1", "2xxxxxx      ^py-wheel@2", "1xxxxxx  py-wheel@1"]
    assert [line.strip() for line in told] == names


def test_a_nasty_message_breaks_neither_tables_nor_code_nor_xml(report, text):
    fail_build(report, NASTY)
    report.versions[NASTY] = NASTY
    shown = r"rank 1: a \| b<br>\<b>\*\[\`c\`\\" + "\N{REPLACEMENT CHARACTER}"
    assert cells(text(), shown)[1] == shown
    (row,) = [line for line in text().splitlines() if line.startswith("| build | py-horovod")]
    assert f"| {shown} |" in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 7
    assert "\x1b" not in text() and "\x00" not in text()
    (failure,) = parsed(report).iter("failure")
    assert failure.get("message") == "rank 1: a | b"
    assert "<b>*[`c`\\\N{REPLACEMENT CHARACTER}" in failure.text


def test_a_fence_is_longer_than_the_backticks_within(report, text):
    fail_check(report, 0, "```\n# PASSED")
    assert "\n````text\n```\n# PASSED\n````\n" in text("Failures")


# JUnit


def test_junit_counts_steps_checks_and_operations(report):
    root = parsed(report)
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
    root = parsed(report)
    assert counts(root) == (11, 3, 1)
    step, whole, allreduce = root.iter("failure")
    assert whole.get("message") == "rank 1 died"
    assert whole.text == "rank 1 died\nfor good\nrank 0 was waiting\nlog: /logs/mpirun.txt"
    assert allreduce.get("message") == "rank 1: wrong result in float32 x 1000"
    assert allreduce.text.endswith("log: /logs/mpirun.txt")


# Pictures


def test_a_picture_shows_the_data_and_is_linked(tmp_path, report):
    write_report(report, tmp_path)
    for name, height in (("bandwidth.png", 500), ("timings.png", 162)):
        picture = (tmp_path / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert struct.unpack(">II", picture[16:24]) == (800, height)
        assert f"({name})" in (tmp_path / "report.md").read_text()
    report.checks[0]["bandwidth"][0]["bus_mb_s"] *= 100
    assert plot.bandwidth(report) != (tmp_path / "bandwidth.png").read_bytes()


def test_without_data_there_is_no_picture_nor_a_stale_one(tmp_path, report):
    write_report(report, tmp_path)
    for row in report.checks[0]["bandwidth"]:
        row["bus_mb_s"] = 0.0  # that of a single rank
    report.checks[1]["bandwidth"] = []
    report.stages = [Stage("smoke", "ok", 0.0)]
    written = write_report(report, tmp_path)
    assert not [path for path in written if path.suffix == ".png"]
    assert not list(tmp_path.glob("*.png"))
    assert ".png" not in (tmp_path / "report.md").read_text()
