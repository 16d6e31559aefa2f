"""Try the chosen cells one after the other, and keep what came of each as soon as it has ended."""

from __future__ import annotations

import collections
import pathlib
import re
import traceback
from typing import Dict, List, Sequence, Tuple

import rich.progress

from hvd.core import console, lock, paths, process
from hvd.core.errors import HvdError
from hvd.matrix import examples, result, runner, upstream, wanted
from hvd.matrix.definition import AXES, Cell, Matrix
from hvd.matrix.here import Here
from hvd.matrix.plan import Planned
from hvd.matrix.result import TRIED, Result
from hvd.matrix.runner import Options
from hvd.report.text import duration, plural

#: The console's word for a result.
_WORDS = {"passed": "ok", "failed": "failed", "refused": "skipped", "skipped": "skipped"}


def chosen(planned: Sequence[Planned], filters: Sequence[str]) -> List[Planned]:
    """Those that every one of ``filters`` lets through.

    Args:
        planned: all of them.
        filters: ``AXIS=VALUE[,VALUE]``, or a text that is in the cell's name.

    Raises:
        HvdError: a filter names no axis.
    """
    found = list(planned)
    for text in filters:
        axis, equals, values = text.partition("=")
        if equals and axis not in AXES:
            raise HvdError(f"--filter: no axis is called '{axis}'", f"use {', '.join(AXES)}")
        if equals:
            wanted_values = values.split(",")
            found = [each for each in found if getattr(each.cell, axis) in wanted_values]
        else:
            found = [each for each in found if text in each.cell.id]
    return found


def shard(planned: Sequence[Planned], text: str) -> List[Planned]:
    """One of several parts of the cells, each for a machine or a checkout of its own.

    Cells with the same framework and Python are in one part: they share what pip installs.  The
    order stays: what must be comes first.

    Args:
        planned: all of them.
        text: ``K/N``, for part K of N.

    Raises:
        HvdError: it is not that.
    """
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    number, count = map(int, match.groups()) if match else (1, 0)
    if number > count:
        raise HvdError(f"--shard: '{text}' is no part", "give K/N, such as 1/2 and 2/2")
    groups: Dict[Tuple[str, str], List[Planned]] = collections.defaultdict(list)
    for each in planned:
        groups[each.cell.framework, each.cell.python].append(each)
    parts: List[List[Planned]] = [[] for _ in range(count)]
    # the largest first, each to the part that has least: parts of much the same size
    for group in sorted(groups.values(), key=len, reverse=True):
        min(parts, key=len).extend(group)
    return [each for each in planned if each in parts[number - 1]]


def current(
    matrix: Matrix,
    planned: Planned,
    here: Here,
    earlier: Dict[str, Result],
    options: Options,
) -> bool:
    """Whether an earlier result of the cell still holds: it was made from the same.

    Args:
        matrix: whose cell it is.
        planned: the cell.
        here: the machine.
        earlier: results by the cell's name.
        options: one that passed, and of which these ask for more than was run, does not.
    """
    before = earlier.get(planned.cell.id)
    if before is None or before.result not in TRIED:
        return False
    frameworks = matrix.frameworks[planned.cell.framework].frameworks
    if options.examples and before.result == "passed":
        if set(examples.chosen(frameworks, before.distributions)) - set(before.examples):
            return False
    if options.upstream_tests and before.result == "passed" and not before.upstream:
        if upstream.suite(matrix.upstream, planned.cell.horovod, frameworks):
            return False
    return before.inputs == wanted.inputs(matrix, planned.cell, here)


def run(matrix: Matrix, planned: Sequence[Planned], here: Here, options: Options) -> List[Result]:
    """Try the cells, and keep every result.

    What the recipe refuses and what this machine lacks is kept as well, where no build of the cell
    is known.  A cell that fails, hangs or cannot be tried does not keep others from being tried,
    and neither does a mistake of ours.

    Raises:
        HvdError: after all others, where trying a cell ended in such a mistake.
    """
    process.adopt_orphans()
    results: List[Result] = []
    mistakes: List[pathlib.Path] = []
    with lock.exclusive(runner.STATE / "lock", "runs the matrix in this checkout"):
        # the lock of a cell's own ./hvd is what its compilers carry
        for cell in sorted((runner.STATE / "cells").glob("*")):
            lock.end_orphans(cell / "lock")
        columns = (
            rich.progress.BarColumn(24),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn("{task.description}"),
        )
        with rich.progress.Progress(
            *columns, console=console.out, transient=True, disable=not console.out.is_terminal
        ) as progress:
            bar = progress.add_task("", total=len(planned))
            for each in planned:
                progress.update(bar, description=each.cell.id)
                try:
                    results.append(_one(matrix, each, here, options))
                except Exception:
                    mistakes.append(_note_mistake(each.cell))
                progress.advance(bar)
    if mistakes:
        raise HvdError(
            f"{plural(len(mistakes), 'cell')} ended in an internal error of ./hvd",
            "report what the logs end with: " + ", ".join(map(paths.shorten, mistakes)),
        )
    return results


def _note_mistake(cell: Cell) -> pathlib.Path:
    log = runner.log(cell)
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as sink:
        traceback.print_exc(file=sink)
    console.out.print(f"  [red]{'mistake':<8}[/] {cell.id}")
    return log


def _one(matrix: Matrix, planned: Planned, here: Here, options: Options) -> Result:
    if planned.action == "try":
        made = runner.run(matrix, planned.cell, here, options, result.save)
    else:
        made = runner.untried(matrix, planned, here)
    result.save(made)
    seconds = f"{duration(made.total)}, " if made.total else ""
    word = _WORDS[made.result]
    colour = {"ok": "green", "failed": "red"}.get(word, "yellow")
    detail = f"{seconds}{made.reason}".rstrip(", ")
    console.out.print(f"  [{colour}]{made.result:<8}[/] {made.cell.id}")
    if detail:
        console.note(f"         {detail}")
    return made


def unexpected(matrix: Matrix, results: Sequence[Result]) -> List[Result]:
    """Those that failed, and that ``ci/matrix.yaml`` does not expect to."""
    return [r for r in results if r.result == "failed" and not matrix.expects(r.cell)]
