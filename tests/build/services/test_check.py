"""./hvd check on a real Slurm: the whole suite passes, and what is broken fails it by name."""

from __future__ import annotations

import json
import re

import pytest

from tests.build import slurm_site
from tests.build.test_smoke_faults import KILL, OPERATION, SITECUSTOMIZE

#: One of the checks, as ReFrame names it.
ONE = "^Allreduce%framework=pytorch%operations=mpi%nodes={}$"
#: No machine reaches it.
TOO_FAST = {"operations": "mpi", "nodes": 1, "bus_mb_s": 1e9, "source": "own"}


@pytest.fixture(scope="module")
def check(built_horovod, slurm):
    """Run `./hvd check` on the cluster, where the least bandwidths are as given."""

    def run(*arguments: str, bandwidth=(), **more: str):
        checkout = built_horovod.checkout
        with slurm_site.local(checkout, bandwidth):
            variables = {"PATH": slurm.variables["PATH"], **more}
            return checkout.hvd("check", "local-hvd", "--engine=pip", *arguments, **variables)

    return run


def results(checkout):
    """Each check's name and result, of ReFrame's report."""
    report = json.loads((checkout.root / ".hvd" / "reframe" / "report.json").read_text())
    cases = report["runs"][-1]["testcases"]
    return {case["display_name"]: case for case in cases}


def test_the_suite_passes(check, built_horovod):
    # one at a time: there may be no more cores than ranks
    done = check("--quick", "--", "--exec-policy=serial")
    assert done.returncode == 0, done.stdout
    found = results(built_horovod.checkout)
    assert {case["result"] for case in found.values()} == {"pass"}, done.stdout
    launched = {("mpi", 1), ("mpi", 2), ("gloo", 1)}
    assert set(found) == {"CheckBuild"} | {
        f"Allreduce %framework=pytorch %operations={operations} %nodes={nodes}"
        for operations, nodes in launched
    }
    assert "--quick: bandwidths are measured and not judged" in done.stdout
    for name, case in found.items():
        if name != "CheckBuild":
            assert case["perfvalues"], name


def test_a_killed_rank_is_named(check, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE.replace("FAULT", KILL))
    planted = {"HVD_CALLER_PYTHONPATH": str(tmp_path)}
    done = check("--quick", "--", "--name", ONE.format(2), **planted)
    assert done.returncode == 1, done.stdout
    assert f"rank 1 died (signal 9) in {OPERATION}" in done.stdout


def test_too_little_bandwidth_fails(check):
    done = check("--", "--name", ONE.format(1), bandwidth=[TOO_FAST])
    assert done.returncode == 1, done.stdout
    assert re.search(r"failed to meet reference\S*: bus_bandwidth=", done.stdout), done.stdout
    assert "for mpi on 2 nodes, gloo on 1 node:" in done.stdout.replace("\n", "")


def test_no_check_at_all_is_no_success(check):
    done = check("--", "--name", "misspelt")
    assert done.returncode == 2, done.stdout
    assert "no check was run" in done.stdout
