"""The report of a run: for people, for continuous integration and for programs.

`run_report` holds the data and their file; `verdict` says what passed and what failed; `results`
reads the results of the smoke test; `markdown`, `junit` and `plot` write the formats.
"""

from __future__ import annotations

import pathlib
from typing import Any, Callable, List, Mapping

from hvd.core import paths
from hvd.core.files import write_atomically
from hvd.core.run import Run
from hvd.host import machine
from hvd.report import junit, markdown, plot
from hvd.report.run_report import RunReport

__all__ = ["RunReport", "report_stage", "write_report"]


def report_stage(
    run: Run, directory: pathlib.Path, fields: Callable[[], Mapping[str, Any]]
) -> None:
    """Write the report of ``run`` into ``directory``, as its last stage.

    Args:
        fields: returns those of `RunReport` that ``run`` and this machine do not give.

    Raises:
        StageFailed: a file cannot be written, or ``fields`` raised HvdError.
    """
    with run.stage("report"), run.step("report") as task:
        stages = [stage for stage in run.stages if stage.name != "report"]
        known = {"started": run.started, "host": machine.describe(), "stages": stages}
        write_report(RunReport(**known, **fields()), directory)
        task.say(paths.shorten(directory / "report.md"))


def write_report(report: RunReport, directory: pathlib.Path) -> List[pathlib.Path]:
    """Write every form of ``report`` into ``directory``, which is made if it is missing.

    Returns:
        The files: ``report.md``, ``report.json``, ``junit.xml`` and the pictures that have data;
        one of an earlier run that has none is removed.

    Raises:
        HvdError: a file cannot be written.
    """
    # The data first: a mistake in a picture must not lose them.
    report.save(directory / "report.json")
    write_atomically(directory / "junit.xml", junit.render(report))
    pictures = {"bandwidth.png": plot.bandwidth(report), "timings.png": plot.timings(report)}
    for name, content in pictures.items():
        if content:
            write_atomically(directory / name, content)
        else:
            (directory / name).unlink(missing_ok=True)
    names = [name for name, content in pictures.items() if content]
    write_atomically(directory / "report.md", markdown.render(report, directory, names).encode())
    return [directory / name for name in ("report.md", "report.json", "junit.xml", *names)]
