"""Whether a run passed, and what is to blame where it did not."""

from __future__ import annotations

import dataclasses
from typing import List, Optional

from hvd.core.steps import Stage
from hvd.report import checks
from hvd.report.model import RunReport
from hvd.report.text import duration, plural


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something that failed.

    Args:
        where: such as ``build: py-horovod`` or ``smoke: mpirun``.
        messages: what is wrong, the cause first; at least one.
        log: the log that says more, if there is one.
    """

    where: str
    messages: List[str]
    log: Optional[str] = None


def problems(report: RunReport) -> List[Problem]:
    """Everything that failed, in the order of the run; empty if the run passed.

    A step that failed in a stage that went on without it is no problem.
    """
    failed = [check for check in report.checks if not checks.passed(check)]
    found = [
        problem
        for stage in report.stages
        if stage.status == "failed" and not (stage.name == "smoke" and failed)
        for problem in _of_stage(stage)
    ]
    found += [
        Problem(f"smoke: {checks.name(check)}", checks.failures(check), check.get("log"))
        for check in failed
    ]
    if not found and not report.stages and not report.checks:
        found = [Problem("run", ["nothing was run"])]
    return found


def _of_stage(stage: Stage) -> List[Problem]:
    steps = [step for step in stage.steps if step.status == "failed"]
    if not steps:
        return [Problem(stage.name, ["the stage failed, but none of its steps did"])]
    return [
        Problem(f"{stage.name}: {step.name}", [step.detail or "no reason given"], step.log)
        for step in steps
    ]


def sentence(report: RunReport) -> str:
    """The outcome in one sentence, for a person."""
    found = problems(report)
    if found:
        first = found[0]
        others = sum(len(problem.messages) for problem in found) - 1
        more = f" (and {plural(others, 'more failure')}, below)" if others else ""
        cause = first.messages[0].strip().partition("\n")[0]
        return f"{first.where} failed: {cause}{more}"
    took = duration(sum(stage.seconds for stage in report.stages))
    what = ", ".join(report.specs) or report.environment
    if not report.checks:
        done = ", ".join(stage.name for stage in report.stages if stage.status != "skipped")
        return f"{what} went through {done} in {took}; no smoke test was run."
    return f"{what} passed {_every(len(report.checks))} of the smoke test in {took}."


def _every(count: int) -> str:
    return f"all {count} checks" if count > 1 else "the only check"
