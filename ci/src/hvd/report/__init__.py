"""The report of a run: for people, for continuous integration and for programs.

`model` holds what is reported and its file; `verdict` says whether the run passed; `checks`
reads what the smoke test found; `markdown`, `junit` and `plot` put it into their formats.
"""

from __future__ import annotations

import pathlib
from typing import Dict, List, Optional

from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.report import junit, markdown, plot
from hvd.report.model import RunReport

__all__ = ["RunReport", "write_report"]


def write_report(report: RunReport, directory: pathlib.Path) -> List[pathlib.Path]:
    """Write every form of ``report`` into ``directory``, which is made where it is missing.

    A picture for which there are no data is not written, and one of an earlier run removed.

    Returns:
        The files: ``report.md``, ``report.json``, ``junit.xml``, and those of
        ``bandwidth.png`` and ``timings.png`` that there are.

    Raises:
        HvdError: a file cannot be written.
    """
    # The data first: whatever may be wrong with a picture, they are not lost.
    report.save(directory / "report.json")
    write_atomically(directory / "junit.xml", junit.render(report))
    pictures = _write_pictures(report, directory)
    names = [path.name for path in pictures]
    text = markdown.render(report, directory, names)
    write_atomically(directory / "report.md", text.encode())
    return [directory / name for name in ("report.md", "report.json", "junit.xml", *names)]


def _write_pictures(report: RunReport, directory: pathlib.Path) -> List[pathlib.Path]:
    pictures: Dict[str, Optional[bytes]] = {
        "bandwidth.png": plot.bandwidth(report),
        "timings.png": plot.timings(report),
    }
    written = []
    for name, content in pictures.items():
        path = directory / name
        if content is None:
            _remove(path)
        else:
            write_atomically(path, content)
            written.append(path)
    return written


def _remove(path: pathlib.Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise HvdError(f"cannot remove {path}: {error.strerror}") from error
