"""The page of the rehearsals that environments keep."""

from __future__ import annotations

import pathlib
from typing import Dict, List, Sequence

from hvd.core import paths
from hvd.docs.site_page import bring_up_to_date
from hvd.model import environment
from hvd.rehearse import result
from hvd.report import templates
from hvd.solve import kept

PAGE = paths.ROOT / "docs" / "rehearsals.md"


def write(check: bool) -> List[pathlib.Path]:
    """Write the page, or with ``check`` refuse a stale one; return what was written.

    Raises:
        HvdError: with ``check``, it is out of date.
    """
    files = [result.file(environment.load(name)) for name in environment.of_sites()]
    rehearsed = [result.load(file) for file in files if file.exists()]
    results = [each for each in rehearsed if len(each.steps) > 1]
    steps = [step.name for step in results[0].steps] if results else []
    rows = [
        [each.environment, each.date, _built_for(each), *(step.result for step in each.steps)]
        for each in results
    ]
    others = [each for each in rehearsed if each not in results]
    text = templates.render(
        "rehearse/rehearsals.md.j2",
        results=results,
        steps=steps,
        rows=rows,
        others=others,
        unbuilt=_unbuilt(results),
    )
    stale = {} if PAGE.exists() and PAGE.read_text() == text else {PAGE: text.encode()}
    return bring_up_to_date(stale, check, "the rehearsals say", "./hvd docs")


def _unbuilt(results: Sequence[result.Result]) -> List[List[str]]:
    """Rows of what the solutions of sites build and no rehearsal did, and where it is needed."""
    done = {package for each in results for package in each.built}
    needed: Dict[str, List[str]] = {}
    for name in environment.of_sites():
        for package in kept.built(kept.load(environment.load(name)).packages):
            needed.setdefault(package, []).append(name)
    return [[each, ", ".join(needed[each])] for each in sorted(set(needed) - done)]


def _built_for(rehearsed: result.Result) -> str:
    stacks = {"+cuda": "CUDA", "+rocm": "ROCm"}
    return next((name for variant, name in stacks.items() if variant in rehearsed.spec), "CPUs")
