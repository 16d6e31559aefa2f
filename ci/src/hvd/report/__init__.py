"""The report of a run: for people, for continuous integration and for programs.

`model` holds the data and their file; `verdict` says what passed and what failed; `checks` reads
the results of the smoke test; `markdown`, `junit` and `plot` write the formats.
"""

from __future__ import annotations

import pathlib
from typing import List

from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.report import junit, markdown, plot
from hvd.report.model import RunReport

__all__ = ["RunReport", "write_report"]


def write_report(report: RunReport, directory: pathlib.Path) -> List[pathlib.Path]:
    """Write every form of ``report`` into ``directory``, which is made if it is missing.

    A picture without data is not written, and one of an earlier run removed.

    Returns:
        The files: ``report.md``, ``report.json``, ``junit.xml``, ``bandwidth.png`` and
        ``timings.png``; without the pictures that have no data.

    Raises:
        HvdError: a file cannot be written.
    """
    # The data first: a mistake in a picture must not lose them.
    report.save(directory / "report.json")
    write_atomically(directory / "junit.xml", junit.render(report))
    pictures = {"bandwidth.png": plot.bandwidth(report), "timings.png": plot.timings(report)}
    names = [name for name, content in pictures.items() if content]
    for name, content in pictures.items():
        if content:
            write_atomically(directory / name, content)
        else:
            _remove(directory / name)
    write_atomically(directory / "report.md", markdown.render(report, directory, names).encode())
    return [directory / name for name in ("report.md", "report.json", "junit.xml", *names)]


def _remove(path: pathlib.Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise HvdError(f"cannot remove {path}: {error.strerror}") from error
