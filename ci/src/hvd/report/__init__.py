"""The report of a run: for people, for continuous integration and for programs."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import Any, Callable, Dict, List, Mapping

from hvd.core import paths, schema
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.run import Run
from hvd.core.steps import Stage
from hvd.host import machine

_REMEDY = "write a new one: ./hvd run"


@dataclasses.dataclass
class RunReport:
    """The report of one run."""

    environment: str
    engine: str  #: ``spack`` or ``pip``
    started: str  #: ISO 8601 in UTC, such as ``2026-01-31T08:15:00Z``
    specs: List[str] = dataclasses.field(default_factory=list)  #: the roots that were asked for
    versions: Dict[str, str] = dataclasses.field(default_factory=dict)  #: of what matters, by name
    host: Dict[str, Any] = dataclasses.field(default_factory=dict)  #: see `machine.describe`
    tree: str = ""  #: the packages, as Spack prints them
    stages: List[Stage] = dataclasses.field(default_factory=list)  #: those that were reached
    #: as ``Check.to_dict()`` of `hvd.smoke.run` returns them
    checks: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    #: of this repository, Spack and its packages; ``+`` after one with local changes
    commits: Dict[str, str] = dataclasses.field(default_factory=dict)
    bom: str = ""  #: path of the bill of materials; empty if nothing was built

    def save(self, path: pathlib.Path) -> None:
        """Write the report to ``path`` atomically."""
        text = json.dumps(dataclasses.asdict(self), indent=2, default=os.fspath)
        write_atomically(path, f"{text}\n".encode())

    @classmethod
    def load(cls, path: pathlib.Path) -> RunReport:
        """Read the report in ``path``."""
        try:
            data = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise HvdError(f"cannot read {paths.shorten(path)}: {error}", _REMEDY) from error
        return schema.structure(cls, data, path, _REMEDY)


def report_stage(
    run: Run, directory: pathlib.Path, fields: Callable[[], Mapping[str, Any]]
) -> None:
    """Write the report of ``run`` into ``directory``, as its last stage.

    Args:
        fields: returns those of `RunReport` that ``run`` and this machine do not give.
    """
    with run.stage("report"), run.step("report") as task:
        stages = [stage for stage in run.stages if stage.name != "report"]
        known = {"started": run.started, "host": machine.describe(), "stages": stages}
        write_report(RunReport(**known, **fields()), directory)
        task.say(paths.shorten(directory / "report.md"))


def write_report(report: RunReport, directory: pathlib.Path) -> None:
    """Write ``report.json``, ``junit.xml`` and ``report.md`` into ``directory``."""
    # here, as their libraries take a while to import
    from hvd.report import page, verdict

    report.save(directory / "report.json")
    write_atomically(directory / "junit.xml", verdict.junit(report))
    write_atomically(directory / "report.md", page.render(report, directory).encode())
