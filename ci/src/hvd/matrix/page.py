"""``docs/support-matrix.md`` and its picture, made from the results."""

from __future__ import annotations

import collections
import pathlib
import re
from typing import Dict, Iterable, List, Sequence

from hvd.core import paths, templates
from hvd.docs import site_page
from hvd.matrix import needs, picture, ranks, result
from hvd.matrix.definition import HERE, NONE, SYSTEM, Matrix
from hvd.matrix.result import Result
from hvd.model import specs
from hvd.model.environment import HOROVOD
from hvd.report import canvas
from hvd.report.text import Markdown, duration, escape, figures, plural

BEGIN = "<!-- made by ./hvd matrix -->"
PAGE = paths.ROOT / "docs" / "support-matrix.md"
PICTURE = PAGE.with_name("support-matrix.svg")

#: The distributions of frameworks, and Spack's packages of compilers and MPIs.
_FRAMEWORKS = (
    *("torch", "tensorflow-cpu", "tensorflow-rocm", "tensorflow"),
    *("keras", "mxnet", "pyspark", "ray"),
)
_COMPILERS = ("gcc", "llvm")
_MPIS = ("openmpi", "mpich", "intel-mpi")


def write(matrix: Matrix, check: bool = False) -> List[pathlib.Path]:
    """Write page and picture from the results, or with ``check`` refuse stale ones.

    Raises:
        HvdError: with ``check``, a file is out of date; or a result is damaged.
    """
    results = result.load_all()
    stale: Dict[pathlib.Path, bytes] = {}
    text = site_page.put(PAGE, page(matrix, results), BEGIN)
    if PAGE.read_text() != text:
        stale[PAGE] = text.encode()
    if results:
        drawn = PICTURE.read_text() if PICTURE.exists() else ""
        if canvas.digest_of(drawn) != picture.digest(results):
            stale[PICTURE] = b"" if check else picture.draw(matrix, results)
    return site_page.bring_up_to_date(
        stale, check, "the results in docs/matrix say", "./hvd matrix --page"
    )


def page(matrix: Matrix, results: Sequence[Result]) -> str:
    """Return the generated part of the page."""
    if not results:
        return "No cell has been tried yet.\n"
    results = sorted(results, key=_key)
    counts = collections.Counter(each.result for each in results)
    outcomes = [name for name in ("passed", "failed", "refused", "skipped") if counts[name]]
    dates = sorted(each.date for each in results)
    template = templates.environment(finalize=escape).get_template("matrix/page.md.j2")
    return template.render(
        results=results,
        counts=", ".join(f"{counts[name]} {name}" for name in outcomes),
        dates=dict.fromkeys([dates[0], dates[-1]]),
        picture=PICTURE.name,
        frameworks=matrix.axes["framework"],
        sizes=ranks.SIZES,
        axes=_axes,
        duration=duration,
        figures=figures,
        plural=plural,
        reasons=_reasons,
        span=_span,
        why=lambda failed: _why(matrix, failed),
    )


def _reasons(results: Iterable[Result], outcome: str) -> Dict[str, List[Result]]:
    """Return the results with an ``outcome`` by their reasons."""
    groups: Dict[str, List[Result]] = {}
    for each in results:
        if each.result == outcome:
            # the release that the message begins with is in its own column
            reason = re.sub(rf"^{HOROVOD}(@\S+)?: ", "", each.reason)
            groups.setdefault(reason, []).append(each)
    return groups


def _why(matrix: Matrix, failed: Result) -> Markdown:
    """Return everything that is known of a failure."""
    known = [(c.explanation, c.link) for c in matrix.causes if c.name == failed.cause]
    noted = matrix.expects(failed.cell)
    if noted:
        known.append((noted.reason, noted.link))
    words = [f"{escape(text)} [{link.partition('//')[2]}]({link})" for text, link in known]
    refused = needs.refusal(needs.horovod(), failed.spec)
    if refused:
        words.append(escape(f"Refused by the recipe: {refused}."))
    return Markdown(" ".join(words) or "not known yet")


def _axes(each: Result) -> Markdown:
    """Return the table cells of the axes, with the versions that were really used."""
    cell, versions = each.cell, each.versions

    def used(names: Iterable[str], found: Dict[str, str]) -> List[str]:
        return [f"{name} {found[name]}" for name in names if name in found]

    compiler = "" if cell.compiler == SYSTEM else cell.compiler
    compiler = (*used(_COMPILERS, versions), compiler)[0]
    root = each.host.get("root")
    if cell.target != HERE:
        compiler += f" for {cell.target}{f' in {root}' if root else ''}"
    mpi = "–" if cell.mpi == NONE else (*used(_MPIS, versions), cell.mpi)[0]
    shown = {
        **cell.values,
        "framework": ", ".join(used(_FRAMEWORKS, each.distributions)) or cell.framework,
        "python": versions.get("Python", cell.python),
        "mpi": mpi,
        "cmake": versions.get("cmake", cell.cmake.rpartition("-")[2]),
        "compiler": compiler,
    }
    del shown["target"]
    return Markdown(" | ".join(map(escape, shown.values())))


def _span(results: Iterable[Result], axis: str) -> str:
    """Return the distinct values of an axis in order; of many versions, the first and the last."""
    values = {getattr(each.cell, axis) for each in results} - {NONE}
    found = sorted(values, key=specs.version_key)
    if len(found) < 5 or not found[0][0].isdigit():
        return ", ".join(found)
    return f"{found[0]} to {found[-1]} ({len(found)})"


def _key(each: Result) -> List[object]:
    """Return the sort key: newest Horovod first, then the order of the names."""
    newest = [(-kind, -number) for kind, number, _ in specs.version_key(each.cell.horovod)]
    return [newest, each.cell.framework, specs.version_key(each.cell.python), each.cell.id]
