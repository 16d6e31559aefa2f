"""`./hvd run`, for real: killed in each stage, finished, and run again."""

import json
import pathlib
import signal
import xml.etree.ElementTree

from hvd.smoke.launch import small_machine
from tests.checkout import run
from tests.ranks import PROGRAM, said


def test_a_run_that_was_killed_in_each_stage_finishes(built):
    *killed, last = built.attempts
    for attempt in killed:
        assert attempt.status == -signal.SIGKILL, f"{attempt.killed_in}: {attempt.output}"
        # it was in that stage, and had not got past it
        assert attempt.output.splitlines()[-1].strip() == attempt.killed_in
    assert last.status == 0, last.output


def test_the_report_has_everything(built):
    report = json.loads((built.report / "report.json").read_text())
    assert [stage["name"] for stage in report["stages"]] == [
        "setup",
        "concretize",
        "build",
        "smoke",
    ]
    assert {check["name"]: check["passed"] for check in report["checks"]} == {
        "check-build": True,
        "mpirun": True,
        "horovodrun --mpi": True,
        "horovodrun --gloo": True,
    }
    for check in report["checks"][1:]:
        assert all(row["ok"] == {"0": True, "1": True} for row in check["operations"])
        assert {row["bytes"] for row in check["bandwidth"]} >= {4, 64 * 2**20}
    assert report["versions"]["Horovod"] == "0.28.1"
    assert report["versions"]["PyTorch"]
    bill = json.loads(pathlib.Path(report["bom"]).read_text())
    found = {each["purl"]: each for each in bill["components"]}
    closed = {
        issue["id"]
        for patch in found["pkg:pypi/horovod@0.28.1"]["pedigree"]["patches"]
        for issue in patch.get("resolves", ())
    }
    assert closed == {"CVE-2024-10190", "CVE-2026-31234"}
    assert any(purl.startswith("pkg:pypi/torch@2.13.0") for purl in found)
    tools = ["Spack", "Spack packages"] if built.engine == "spack" else []
    assert [len(report["commits"][name]) for name in tools] == [40] * len(tools)
    text = (built.report / "report.md").read_text()
    assert text.startswith("# PASSED: local-hvd")
    assert "py-horovod@0.28.1" in text.partition("## Packages")[2]
    suites = xml.etree.ElementTree.parse(built.report / "junit.xml").getroot()
    assert int(suites.get("tests")) > 10 and int(suites.get("failures")) == 0


def test_a_second_build_does_nothing_and_keeps_no_variable_of_the_caller(built, monkeypatch):
    """Tokens and passwords live in environments."""
    monkeypatch.setenv("SITE_TOKEN", "hunter2-and-more")
    output = built.hvd("build")
    (install,) = [line for line in output.splitlines() if " install" in line]
    assert "cached" in install
    state = built.checkout.state
    files = [*state.glob("logs/**/*.log"), *state.glob("built/*"), *state.glob("*.sh")]
    assert files
    assert not [f for f in files if b"hunter2-and-more" in f.read_bytes()]


def test_one_rank_runs_alone(built, tmp_path):
    """As in a notebook: no mpirun tells it where its MPI is."""
    target = built.target
    environment = {**target.environment, **small_machine()}
    output = run([target.python, "-c", PROGRAM], env=environment, cwd=tmp_path, timeout=120)
    assert said(output) == [(0, 1)], output
