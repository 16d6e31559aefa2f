"""./hvd check on a real Slurm: the whole suite passes, and what is broken fails it by name."""

from __future__ import annotations

import json
import re

import pytest

from tests.build.test_smoke_faults import KILL, OPERATION, SITECUSTOMIZE
from tests.services import slurm_site

#: One of the checks, as ReFrame names it.
ONE = "^Allreduce%framework=pytorch%operations=mpi%nodes={}$"
#: No machine reaches it.
TOO_FAST = {"operations": "mpi", "nodes": 1, "bus_mb_s": 1e9, "source": "own"}


@pytest.fixture(scope="module")
def check(built_horovod, slurm):
    """Run `./hvd check` on the cluster, where the least bandwidths are as given."""

    def run(*arguments: str, status: int = 0, bandwidth=(), **more: str) -> str:
        with slurm_site.local(built_horovod.checkout, bandwidth):
            variables = {"PATH": slurm.variables["PATH"], **more}
            return built_horovod.hvd("check", *arguments, status=status, **variables)

    return run


def test_the_suite_passes(check, built_horovod):
    # one at a time: there may be no more cores than ranks
    output = check("--quick", "--", "--exec-policy=serial")
    report = json.loads((built_horovod.checkout.state / "reframe" / "report.json").read_text())
    found = {case["display_name"]: case for case in report["runs"][-1]["testcases"]}
    assert {case["result"] for case in found.values()} == {"pass"}, output
    launched = {("mpi", 1), ("mpi", 2), ("gloo", 1)}
    assert set(found) == {"CheckBuild"} | {
        f"Allreduce %framework=pytorch %operations={operations} %nodes={nodes}"
        for operations, nodes in launched
    }
    assert all(case["perfvalues"] for name, case in found.items() if name != "CheckBuild")


def test_a_killed_rank_is_named(check, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE.replace("FAULT", KILL))
    planted = {"HVD_CALLER_PYTHONPATH": str(tmp_path)}
    output = check("--quick", "--", "--name", ONE.format(2), status=1, **planted)
    assert re.search(rf"rank 1 on \S+ died of signal 9 \(Killed\) in {OPERATION}", output)


def test_too_little_bandwidth_fails(check):
    output = check("--", "--name", ONE.format(1), status=1, bandwidth=[TOO_FAST])
    assert re.search(r"failed to meet reference\S*: bus_bandwidth=", output), output


def test_no_check_at_all_is_no_success(check):
    assert "no check was run" in check("--", "--name", "misspelt", status=2)
