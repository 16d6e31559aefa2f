"""A report as JUnit's XML."""

import pytest

from tests.unit.reports import counts, fail_check, parsed


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
