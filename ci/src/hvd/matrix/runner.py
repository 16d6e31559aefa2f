"""Try the chosen cells one after the other, and keep each result."""

from __future__ import annotations

import collections
import pathlib
import statistics
import traceback
from typing import Dict, Iterable, List, Optional, Sequence

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hvd.core import console, lock, paths, process
from hvd.core.errors import HvdError
from hvd.matrix import attempt, ranks, result, toolchain
from hvd.matrix.attempt import Options
from hvd.matrix.definition import Cell, Matrix
from hvd.matrix.needs import Needs
from hvd.matrix.plan import Planned
from hvd.matrix.result import Result
from hvd.report.text import duration, plural

_COLOURS = {"passed": "green", "failed": "red", "refused": "yellow", "skipped": "yellow"}


def current(needs: Needs, cell: Cell, before: Optional[Result], options: Options) -> bool:
    """Return whether an earlier result of ``cell`` is up to date.

    It must come from the same inputs, and a passed one must have all that ``options`` ask for.
    """
    if before is None or not before.tried or before.inputs != needs.inputs(cell):
        return False
    if before.result == "failed":
        return True
    frameworks = needs.matrix.frameworks[cell.framework].frameworks
    wanted = set(ranks.examples(frameworks, before.distributions)) if options.examples else set()
    if wanted - set(before.examples):
        return False
    untested = options.upstream_tests and not before.upstream
    return not (untested and ranks.test_files(needs.matrix.upstream, cell.horovod, frameworks))


def run(needs: Needs, planned: Sequence[Planned], options: Options) -> List[Result]:
    """Try the cells and keep every result, whatever happens to one of them.

    Raises:
        HvdError: the disk is full; or, after all cells, an internal error ended one.
    """
    process.adopt_orphans()
    results: List[Result] = []
    broken: List[pathlib.Path] = []
    with lock.exclusive(toolchain.state() / "lock", "runs the matrix in this checkout"):
        # compilers of a killed cell carry the lock of its ./hvd
        for cell in sorted((toolchain.state() / "cells").glob("*")):
            lock.end_orphans(cell / "lock")
        columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
        columns += (TextColumn("{task.description}"),)
        hidden = not console.out.is_terminal
        with Progress(*columns, console=console.out, transient=True, disable=hidden) as progress:
            bar = progress.add_task("", total=len(planned))
            for each in planned:
                progress.update(bar, description=each.cell.id)
                if each.action == "try":
                    toolchain.make_room()
                try:
                    made = attempt.run(needs, each, options)
                    result.save(made)
                    results.append(made)
                    console.out.print(
                        f"  [{_COLOURS[made.result]}]{made.result:<8}[/] {made.cell.id}"
                    )
                    details = [duration(made.total) if made.total else "", made.reason]
                    if any(details):
                        console.note(f"         {', '.join(filter(None, details))}")
                except Exception:
                    broken.append(attempt.log(each.cell))
                    broken[-1].parent.mkdir(parents=True, exist_ok=True)
                    with open(broken[-1], "a") as sink:
                        traceback.print_exc(file=sink)
                    console.out.print(f"  [red]{'broken':<8}[/] {each.cell.id}")
                progress.advance(bar)
    if broken:
        raise HvdError(
            f"an internal error of ./hvd ended {plural(len(broken), 'cell')}",
            "report the end of the logs: " + ", ".join(map(paths.shorten, broken)),
        )
    return results


def unexpected(matrix: Matrix, results: Iterable[Result]) -> List[Result]:
    """Return the failures that ``ci/matrix.yaml`` does not expect."""
    return [r for r in results if r.result == "failed" and not matrix.expects(r.cell)]


def estimate(cells: Sequence[Cell], earlier: Sequence[Result], cached: bool) -> str:
    """Say how long ``cells`` will take, by how long ``earlier`` ones took.

    Times with a compiler cache (``cached``) and without one are not mixed.
    """
    like = [each for each in earlier if each.tried and bool(each.compiler_cache) == cached]
    if not like:
        return f"how long {plural(len(cells), 'cell')} will take is not known: no earlier result"
    seconds = 0.0
    basis: Dict[str, int] = collections.Counter()
    for cell in cells:
        same = [each for each in like if each.cell == cell]
        related = [each for each in like if each.cell.framework == cell.framework]
        name, group = "of the same cell", same
        if not same:
            name, group = ("of the same framework", related) if related else ("of any", like)
        basis[name] += 1
        # the median, so that failures that came early do not count much
        seconds += statistics.median(each.total for each in group)
    known = ", ".join(f"{count} {name}" for name, count in basis.items())
    return f"about {duration(seconds)} by how long earlier cells took: {known}"
