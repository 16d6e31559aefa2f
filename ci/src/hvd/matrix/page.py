"""``docs/support-matrix.md`` and its picture, made from the results."""

from __future__ import annotations

import pathlib
from typing import Dict, Iterable, List, Sequence

from hvd.core import paths
from hvd.docs import site_page
from hvd.matrix import bounds, examples, picture, result, wanted
from hvd.matrix.definition import AXES, NONE, SYSTEM, Matrix
from hvd.matrix.result import TRIED, Result
from hvd.model import specs
from hvd.report import canvas
from hvd.report.text import Markdown, duration, escape, figures, plural, table

BEGIN = "<!-- made by ./hvd matrix -->"
PAGE = paths.ROOT / "docs" / "support-matrix.md"
PICTURE = PAGE.with_name("support-matrix.svg")

_TITLES = {
    "horovod": "Horovod",
    "framework": "Framework",
    "python": "Python",
    "mpi": "MPI",
    "controllers": "Controllers",
    "operations": "Operations",
    "cmake": "CMake",
    "compiler": "Compiler",
    "engine": "Engine",
}
#: What a framework's wheels are called in a result's versions or distributions.
_FRAMEWORKS = ("torch", "tensorflow-cpu", "tensorflow", "keras", "mxnet", "pyspark", "ray")
_MPIS = ("openmpi", "mpich", "intel-mpi")
_ORDER = ("passed", "failed", "refused", "skipped")
#: The axes of the short table.
_SHORT = ("horovod", "python", "mpi", "engine")


def write(matrix: Matrix, check: bool = False) -> List[pathlib.Path]:
    """Bring page and picture up to date with the results, or with ``check`` refuse them.

    Returns:
        The files that were written.

    Raises:
        HvdError: with ``check``, one is not up to date; or a result is damaged.
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
    """The part of the page that is made."""
    if not results:
        return "No cell has been tried yet.\n"
    by = {name: [r for r in results if r.result == name] for name in _ORDER}
    counted = ", ".join(f"{len(by[name])} {name}" for name in _ORDER if by[name])
    dates = sorted(each.date for each in results)
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
    lines = [f"{plural(len(results), 'cell')}: {counted}; {when}.", ""]
    lines += [f"![Cells that passed, of those tried]({PICTURE.name})", ""]
    lines += _short(matrix, results)
    lines += ["## What was built and run", "", *_tried(by["passed"])]
    if by["failed"]:
        lines += ["## What failed, and why", "", *_failed(matrix, by["failed"])]
    if any(each.upstream for each in results):
        lines += ["## Horovod's own tests", "", *_upstream(results)]
    if any(each.examples for each in results):
        lines += ["## Two ranks against one", "", *_examples(results)]
    if by["refused"]:
        lines += ["## What the recipe refuses", "", *_reasons(by["refused"])]
    if by["skipped"]:
        lines += ["## What could not be tried", "", *_reasons(by["skipped"])]
    return "\n".join(lines).rstrip() + "\n"


def _short(matrix: Matrix, results: Sequence[Result]) -> List[str]:
    """A row for each framework."""
    tried = [each for each in results if each.result in TRIED]
    rows = []
    for name in matrix.axes["framework"]:
        group = [each for each in tried if each.cell.framework == name]
        passed = [each for each in group if each.result == "passed"]
        if not group:
            continue
        cells = [_span(getattr(each.cell, axis) for each in passed) for axis in _SHORT]
        rows.append((name, *cells, f"{len(passed)} of {len(group)}"))
    return table(["Framework", *(_TITLES[axis] for axis in _SHORT), "Cells passed"], rows)


def _tried(results: Sequence[Result]) -> List[str]:
    """A row for each cell that passed."""
    rows = []
    for each in sorted(results, key=_key):
        seconds = each.seconds.get("build")
        build = duration(seconds) if seconds else ""
        rows.append((*_values(each), ", ".join(each.checks), build, each.date))
    header = [*_TITLES.values(), "Checks", "Build", "Date"]
    return table(header, rows, right=("Build",))


def _failed(matrix: Matrix, results: Sequence[Result]) -> List[str]:
    """A row for each cell that failed, with all that is known of why."""
    rows = []
    for each in sorted(results, key=_key):
        known, noted = matrix.cause(each.cause), matrix.expects(each.cell)
        why = [_linked(known.explanation, known.link)] if known else []
        why += [_linked(noted.reason, noted.link)] if noted else []
        refused = bounds.refusal(wanted.horovod(), each.spec)
        why += [escape(f"Refused by the recipe: {refused}.")] if refused else []
        cause = Markdown(" ".join(why) or "not known yet")
        rows.append((*_values(each), each.stage, each.reason, cause))
    return table([*_TITLES.values(), "Stage", "First error", "Cause"], rows)


def _linked(text: str, link: str) -> str:
    return f"{escape(text)} [{link.partition('//')[2]}]({link})"


def _upstream(results: Sequence[Result]) -> List[str]:
    rows = [
        (*_values(each), name, *(str(counts[word]) for word in ("passed", "failed", "skipped")))
        for each in sorted(results, key=_key)
        for name, counts in sorted(each.upstream.items())
    ]
    header = [*_TITLES.values(), "File, launcher", "Passed", "Failed", "Skipped"]
    lines = ["Two ranks; a test counts as the rank where it came off worst.", ""]
    return lines + table(header, rows, right=("Passed", "Failed", "Skipped"))


def _examples(results: Sequence[Result]) -> List[str]:
    lines = [
        "Samples per second of [examples/](../examples/README.md) with "
        f"`{' '.join(examples.SIZES)}`, each rank with a core, a thread and a batch of its own: "
        "the fastest of some epochs; over MPI where it was built with it, else over Gloo. The "
        "efficiency is the rate of two ranks over twice that of one.",
        "",
    ]
    rows = [
        (
            *_values(each),
            name,
            *(figures(each.examples[name][ranks]) for ranks in ("1", "2")),
            f"{each.efficiency(name):.2f}",
        )
        for each in sorted(results, key=_key)
        for name in sorted(each.examples)
    ]
    header = [*_TITLES.values(), "Example", "1 rank", "2 ranks", "Efficiency"]
    return lines + table(header, rows, right=("1 rank", "2 ranks", "Efficiency"))


def _reasons(results: Sequence[Result]) -> List[str]:
    """A row for each reason, with what it holds for."""
    groups: Dict[str, List[Result]] = {}
    for each in sorted(results, key=_key):
        groups.setdefault(each.reason.replace("py-horovod: ", "", 1), []).append(each)
    rows = [
        (*(_span(getattr(e.cell, axis) for e in group) for axis in ("horovod", "framework")), why)
        for why, group in groups.items()
    ]
    return table(["Horovod", "Framework", "Reason"], rows)


def _values(each: Result) -> List[str]:
    """The axes' values, with the versions that were really used."""
    cell = each.cell
    framework = ", ".join(
        f"{name} {each.distributions[name]}" for name in _FRAMEWORKS if name in each.distributions
    )
    compiler = next((f"{n} {v}" for n, v in each.versions.items() if n in ("gcc", "llvm")), "")
    library = next((f"{n} {v}" for n, v in each.versions.items() if n in _MPIS), cell.mpi)
    used = {
        "framework": framework or cell.framework,
        "python": each.versions.get("Python", cell.python),
        "mpi": library if cell.mpi != NONE else "–",
        "cmake": each.versions.get("cmake", cell.cmake.rpartition("-")[2]),
        "compiler": compiler or ("" if cell.compiler == SYSTEM else cell.compiler),
    }
    return [used.get(axis, getattr(cell, axis)) for axis in AXES]


def _span(values: Iterable[str]) -> str:
    """Distinct values in order; of many versions, the first and the last."""
    found = sorted(set(values) - {NONE}, key=specs.version_key)
    if len(found) < 5 or not found[0][0].isdigit():
        return ", ".join(found)
    return f"{found[0]} to {found[-1]} ({len(found)})"


def _key(each: Result) -> List[object]:
    """Newest Horovod first, and then in the order of the names."""
    newest = [(-kind, -number) for kind, number, _ in specs.version_key(each.cell.horovod)]
    return [newest, each.cell.framework, specs.version_key(each.cell.python), each.cell.id]
