"""A report as Markdown: its verdict and tables."""

from __future__ import annotations

import re

import pytest

from hvd.model.solution import DagNode
from hvd.report import markdown
from hvd.report.markdown import tree
from tests.unit.reports import (
    LAUNCHERS,
    cells,
    check,
    counts,
    fail_build,
    fail_check,
    operation,
    parsed,
)

NASTY = "\x1b[31mrank 1: a | b\n<b>*[`c`\\\x00\x1b[0m"


@pytest.fixture
def text(report, tmp_path):
    """A function that returns the report, or a section of it, as Markdown."""

    def render(title: str = "") -> str:
        whole = markdown.render(report, tmp_path)
        return whole.partition(f"\n## {title}\n")[2].partition("\n## ")[0] if title else whole

    return render


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
