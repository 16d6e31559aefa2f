"""The page of the rehearsals that environments keep."""

from __future__ import annotations

import pathlib
from typing import List

from hvd.core import paths
from hvd.docs.site_page import bring_up_to_date
from hvd.model import environment
from hvd.rehearse import result
from hvd.report import templates

PAGE = paths.ROOT / "docs" / "rehearsals.md"


def write(check: bool) -> List[pathlib.Path]:
    """Write the page, or with ``check`` refuse a stale one; return what was written.

    Raises:
        HvdError: with ``check``, it is out of date.
    """
    files = [result.file(environment.load(name)) for name in environment.of_sites()]
    kept = [result.load(file) for file in files if file.exists()]
    results = [each for each in kept if len(each.steps) > 1]
    steps = [step.name for step in results[0].steps] if results else []
    rows = [
        [each.environment, each.date, _built_for(each), *(step.result for step in each.steps)]
        for each in results
    ]
    others = [each for each in kept if each not in results]
    text = templates.render(
        "rehearse/rehearsals.md.j2", results=results, steps=steps, rows=rows, others=others
    )
    stale = {} if PAGE.exists() and PAGE.read_text() == text else {PAGE: text.encode()}
    return bring_up_to_date(stale, check, "the rehearsals say", "./hvd docs")


def _built_for(rehearsed: result.Result) -> str:
    stacks = {"+cuda": "CUDA", "+rocm": "ROCm"}
    return next((name for variant, name in stacks.items() if variant in rehearsed.spec), "CPUs")
