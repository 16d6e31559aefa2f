"""The outcome of a run: what passed, what failed and why, in order."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from hvd.core.steps import Stage
from hvd.report import results
from hvd.report.run_report import RunReport
from hvd.report.text import duration, plural


class Case(NamedTuple):
    """A step, a check, an operation of a check, or a stage without steps.

    Args:
        suite: the stage, and within it the check: ``("build",)`` or ``("smoke", "mpirun")``.
        seconds: wall time; the cases of a suite add up to the time of the suite.
        failures: why it failed, the cause first; empty if it did not fail.
        skipped: why it was skipped; None if it was not.
        part: the case of a check names the failure as well.
    """

    suite: Tuple[str, ...]
    name: str
    seconds: float = 0.0
    failures: Sequence[str] = ()
    skipped: Optional[str] = None
    log: Optional[str] = None
    part: bool = False

    @property
    def where(self) -> str:
        """``build: py-horovod``, ``smoke: mpirun`` or, for a stage, ``build``."""
        return ": ".join(results.unique([*self.suite, self.name]))


def cases(report: RunReport) -> Iterator[Case]:
    """Yield the cases of a run in its order."""
    failed_checks = {check["name"] for check in report.checks if check["failures"]}
    for stage in report.stages:
        yield from _of_stage(stage, failed_checks)
    for check in report.checks:
        yield from _of_check(check)
    if not report.stages and not report.checks:
        yield Case(("run",), "run", failures=["nothing was run"])


def problems(report: RunReport) -> List[Case]:
    """Return the cases that failed, each failure once; empty if the run passed."""
    return [case for case in cases(report) if case.failures and not case.part]


def _of_stage(stage: Stage, failed_checks: Set[str]) -> Iterator[Case]:
    suite = (stage.name,)
    for step in stage.steps:
        failures, skipped = [], None
        if step.status == "skipped":
            skipped = step.detail
        elif step.status == "failed" and stage.status == "failed":
            failures = [step.detail or "no reason given"]
        elif step.status == "failed":
            skipped = f"failed, and the stage continued without it: {step.detail}"
        part = stage.name == "smoke" and step.name in failed_checks
        yield Case(suite, step.name, step.seconds, failures, skipped, step.log, part)
    if stage.status == "failed" and not any(step.status == "failed" for step in stage.steps):
        failures = ["the stage failed, but none of its steps did"]
        yield Case(suite, stage.name, stage.seconds, failures)
    elif not stage.steps:
        yield Case(suite, stage.name, stage.seconds)


def _of_check(check: results.Check) -> Iterator[Case]:
    suite = ("smoke", check["name"])
    operations = results.operations(check)
    spent = {name: each.slowest[1] if each.slowest else 0.0 for name, each in operations.items()}
    rest = max(0.0, check["seconds"] - sum(spent.values()))
    yield Case(suite, check["name"], rest, check["failures"], log=check["log"])
    for name, each in operations.items():
        failures = [
            f"rank {rank}: {' in '.join(filter(None, [kind, ', '.join(filter(None, cases))]))}"
            for kind, by_rank in each.faults.items()
            for rank, cases in by_rank.items()
        ]
        log = check["log"] if failures else None
        yield Case(suite, name, spent[name], failures, log=log, part=True)


def sentence(report: RunReport) -> str:
    """Return the outcome in one sentence."""
    found = problems(report)
    if found:
        cause = found[0].failures[0].strip().partition("\n")[0]
        others = sum(len(problem.failures) for problem in found) - 1
        more = f" (and {plural(others, 'more failure')}, below)" if others else ""
        return f"{found[0].where} failed: {cause}{more}"
    took = duration(sum(stage.seconds for stage in report.stages))
    what = ", ".join(report.specs) or report.environment
    if not report.checks:
        done = ", ".join(stage.name for stage in report.stages)
        return f"{what} went through {done} in {took}; no smoke test was run."
    count = len(report.checks)
    every = f"all {count} checks" if count > 1 else "the only check"
    return f"{what} passed {every} of the smoke test in {took}."
