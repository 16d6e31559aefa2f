"""The one file to bring back from a machine: what was found, what was measured, and why not."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
import textwrap
from typing import Any, Dict, Iterator, List, Optional

from hvd.bench.collectives import ALLREDUCE
from hvd.bench.result import Collective
from hvd.build import components
from hvd.build.engine_pip import PipSolution
from hvd.core import process
from hvd.core.files import write_atomically
from hvd.core.run import Run
from hvd.doctor.gather import Gpus
from hvd.host import machine
from hvd.report import RunReport, verdict
from hvd.report.text import duration, plural, size

#: Raised whenever a field is added, removed or changes its meaning.
FORMAT = 1
#: Lines of a log of what failed, and characters of what a step says, in the text.
_TAIL, _DETAIL = 200, 120


@dataclasses.dataclass
class Findings:
    """All that a check has found, as far as it got.

    Args:
        gpus: those of the machine; none if it has none.
        solution: what was built.
        checks: of the smoke test, as in `RunReport`.
        rows: the times of collectives.
    """

    run: Run
    gpus: Gpus
    solution: Optional[PipSolution] = None
    checks: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    rows: List[Collective] = dataclasses.field(default_factory=list)


def write(found: Findings, file: pathlib.Path) -> None:
    """Write ``file``, JSON that begins with a text for people.

    Raises:
        HvdError: it cannot be written.
    """
    run = _run(found)
    data = {
        "format": FORMAT,
        "text": list(text(found, run)),
        "gpus": dataclasses.asdict(found.gpus),
        "bandwidth": [
            {
                **dataclasses.asdict(row),
                "algorithm_bytes_s": row.bandwidth,
                "bus_bytes_s": row.bus_bandwidth,
            }
            for row in found.rows
        ],
        "report": dataclasses.asdict(run),
        "logs": _logs(run),
    }
    write_atomically(file, f"{json.dumps(data, indent=1, default=os.fspath)}\n".encode())


def gpus(found: Gpus) -> str:
    """Return such as ``2 x NVIDIA H200, capability 9.0; driver for CUDA 13.0``."""
    if not found.names:
        return f"none: {found.reason}"
    counts = collections.Counter(zip(found.names, found.capabilities))
    words = [f"{n} x {name}, capability {number}" for (name, number), n in counts.items()]
    return "; ".join([*words, f"driver for CUDA {'.'.join(map(str, found.driver))}"])


def text(found: Findings, run: RunReport) -> Iterator[str]:
    """Yield the lines of the text."""
    yield f"{run.started}  {verdict.sentence(run)}"
    yield f"GPUs: {gpus(found.gpus)}"
    yield f"host: {run.host['cpu']}, {run.host['cores']} cores, {run.host['os']}"
    yield "versions: " + ", ".join(f"{name} {version}" for name, version in run.versions.items())
    for stage in run.stages:
        for step in stage.steps:
            detail = textwrap.shorten(step.detail, _DETAIL)
            line = f"{stage.name}: {step.name}: {step.status}, {duration(step.seconds)}  {detail}"
            yield line.rstrip()
    for check in run.checks:
        rows = check["operations"]
        if rows:
            types = ", ".join(dict.fromkeys(row["dtype"] for row in rows if row["dtype"]))
            ranks = plural(max(len(row["ok"]) for row in rows), "rank")
            right = sum(all(row["ok"].values()) for row in rows)
            yield f"{check['name']}: {ranks}, {right} of {len(rows)} results right; {types}"
        yield from (f"{check['name']}: {failure}" for failure in check["failures"])
    yield from _bandwidth(found.rows)


def _bandwidth(rows: List[Collective]) -> Iterator[str]:
    """Yield a line for each size of the in-place allreduce of float32, and for each training.

    The bandwidths are those of nccl-tests; that of the bus is zero for one rank.
    """
    chosen = [each for each in rows if ALLREDUCE.items() <= dataclasses.asdict(each).items()]
    if chosen:
        ranks = plural(chosen[0].ranks, "rank")
        yield f"in-place allreduce of float32, {ranks}: median time, algorithm and bus bandwidth"
    for each in sorted(chosen, key=lambda row: row.bytes):
        rates = "".join(
            f"  {rate / 1e9:8.2f} GB/s" for rate in (each.bandwidth, each.bus_bandwidth)
        )
        yield f"{size(each.bytes):>8}  {each.median * 1e6:10.1f} us{rates}  {each.name}"
    for each in rows:
        if each.operation.startswith("training"):
            yield f"step of {each.operation}  {each.median * 1e6:10.1f} us  {each.name}"


def _run(found: Findings) -> RunReport:
    solution = found.solution
    return RunReport(
        environment=found.run.environment,
        engine=found.run.engine,
        started=found.run.started,
        specs=solution.environment.specs if solution else [],
        versions=solution.versions() if solution else {},
        host=machine.describe(),
        stages=[stage for stage in found.run.stages if stage.name != "report"],
        checks=found.checks,
        commits=components.commits({}),
    )


def _logs(run: RunReport) -> Dict[str, List[str]]:
    """Return the ends of the logs of what failed."""
    failed = {
        f"{stage.name}: {step.name}": step.log
        for stage in run.stages
        for step in stage.steps
        if step.status == "failed" and step.log
    }
    failed.update(
        (each["name"], each["log"]) for each in run.checks if each["failures"] and each["log"]
    )
    return {
        name: process.tail(pathlib.Path(log), _TAIL).splitlines() for name, log in failed.items()
    }
