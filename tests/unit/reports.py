"""A report to test with, how to make it fail, and what its forms say."""

from __future__ import annotations

import re
import xml.etree.ElementTree
from typing import Any, Dict

from hvd.core.steps import Stage, Step
from hvd.model.solution import DagNode
from hvd.report import RunReport, junit

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


def passed() -> RunReport:
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
