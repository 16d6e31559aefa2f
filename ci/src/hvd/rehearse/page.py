"""The page of the rehearsals that environments keep."""

from __future__ import annotations

import pathlib
from typing import List

import archspec.cpu

from hvd.core import paths
from hvd.docs.site_page import bring_up_to_date
from hvd.model import environment
from hvd.rehearse import result
from hvd.report import templates
from hvd.solve import site_check

PAGE = paths.ROOT / "docs" / "rehearsals.md"


def write(check: bool) -> List[pathlib.Path]:
    """Write the page, or with ``check`` refuse a stale one; return what was written.

    Raises:
        HvdError: with ``check``, it is out of date.
    """
    files = {name: result.file(environment.load(name)) for name in environment.of_sites()}
    results = [result.load(file) for file in files.values() if file.exists()]
    steps = list(dict.fromkeys(step.name for each in results for step in each.steps))
    rows = []
    for each in results:
        found = {step.name: step.result for step in each.steps}
        cells = [found.get(step, result.NOT_SHOWN) for step in steps]
        rows.append([each.environment, each.date, *cells])
    others = {name: _family(name) for name, file in files.items() if not file.exists()}
    text = templates.render(
        "rehearse/rehearsals.md.j2", results=results, steps=steps, rows=rows, others=others
    )
    stale = {} if PAGE.exists() and PAGE.read_text() == text else {PAGE: text.encode()}
    return bring_up_to_date(stale, check, "the rehearsals say", "./hvd docs")


def _family(name: str) -> str:
    """Return the family of an environment's processor, by archspec's name."""
    target = site_check.architecture(environment.load(name).specs[0])["target"]
    return str(archspec.cpu.TARGETS[target].family)
