"""`./hvd run`, for real: killed in each stage, finished, and run again."""

import json
import pathlib
import signal
import subprocess
import xml.etree.ElementTree

import pytest

# Each rank writes its line at once: two ranks share one pipe, and a line in parts may be split.
PROGRAM = """
import os
import horovod.torch as hvd
hvd.init()
os.write(1, f"rank {hvd.rank()} of {hvd.size()}\\n".encode())
"""


@pytest.fixture(params=["pip", "spack"])
def built(request):
    return request.getfixturevalue(f"built_by_{request.param}")


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
    assert (built.report / "bandwidth.png").read_bytes().startswith(b"\x89PNG")
    suites = xml.etree.ElementTree.parse(built.report / "junit.xml").getroot()
    assert int(suites.get("tests")) > 50 and int(suites.get("failures")) == 0


def test_a_second_build_does_nothing_and_keeps_no_variable_of_the_caller(built, monkeypatch):
    """Tokens and passwords live in environments."""
    monkeypatch.setenv("SITE_TOKEN", "hunter2-and-more")
    done = built.checkout.hvd("build", "local-hvd", f"--engine={built.engine}")
    assert done.returncode == 0, done.stdout
    install = [line for line in done.stdout.splitlines() if " install" in line]
    assert len(install) == 1 and "cached" in install[0], done.stdout
    state = built.checkout.root / ".hvd"
    files = [*state.glob("logs/**/*.log"), *state.glob("built/*"), *state.glob("*.sh")]
    assert files
    assert not [f for f in files if b"hunter2-and-more" in f.read_bytes()]


@pytest.mark.parametrize(
    ("launcher", "ranks"), [(["mpirun", "-np", "2"], 2), ([], 1)], ids=["two", "alone"]
)
def test_the_activated_environment_runs_ranks(built, tmp_path, launcher, ranks):
    """One alone as well, as in a notebook: no mpirun tells it where its MPI is."""
    program = tmp_path / "ranks.py"
    program.write_text(PROGRAM)
    environment = {**built.target.environment, "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    environment["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    done = subprocess.run(
        [*launcher, built.target.python, program],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    expected = [f"rank {rank} of {ranks}" for rank in range(ranks)]
    assert sorted(done.stdout.splitlines()) == expected, done.stderr
