"""A report to test with, and how to make it fail."""

from __future__ import annotations

from typing import Any, Dict

from hvd.core.check import State
from hvd.core.steps import Stage, Step
from hvd.report import RunReport
from hvd.smoke.run import Check

LAUNCHERS = ("mpirun", "horovodrun --gloo")


def operation(name: str, dtype: str, elements: int) -> Dict[str, Any]:
    seconds, ok = {"0": 0.001, "1": 0.002}, {"0": True, "1": True}
    named = {"operation": name, "dtype": dtype, "elements": elements}
    return {**named, "seconds": seconds, "ok": ok}


def launched(name: str) -> Dict[str, Any]:
    """A check of the smoke test that passed."""
    found = Check(name, seconds=2.5, log=f"/logs/{name}.txt")
    found.operations = [
        operation("allreduce sum", "float32", 1),
        operation("allreduce sum", "int64", 1000),
        operation("broadcast", "int64", 77),
    ]
    found.bandwidth = [
        {"method": method, "bytes": 4 * 16**n, "seconds": 1e-3, "bus_mb_s": 4e-3 * 16**n}
        for method in ("horovod", "mpi4py")
        for n in range(3)
    ]
    found.mpi_libraries = ["/usr/lib/libmpi.so"]
    found.left_out = [{"operation": "process sets", "reason": "not supported"}]
    return found.to_dict()


def passed() -> RunReport:
    """A run that passed."""
    return RunReport(
        environment="local-hvd",
        engine="spack",
        started="2026-01-31T08:15:00Z",
        specs=["py-horovod@0.28.1 +mpi"],
        versions={"Horovod": "0.28.1"},
        host={"cores": 2, "memory": 8 * 2**30},
        tree=" -   abcdefg  py-horovod@0.28.1",
        stages=[
            Stage("setup", "cached", 1.0, [Step("externals", "cached", 1.0)]),
            Stage("build", "ok", 60.0, [Step("py-cffi", "skipped"), Step("py-horovod", "ok", 59)]),
            Stage("smoke", "ok", 5.0, [Step(name) for name in LAUNCHERS]),
        ],
        checks=[launched(name) for name in LAUNCHERS],
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
    report.checks[place].update(state=State.fail, passed=False, failures=list(failures))
    return report.checks[place]
