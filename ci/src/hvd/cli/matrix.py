"""``./hvd dev matrix``."""

from __future__ import annotations

import collections
import functools
import shutil
import traceback
from typing import Dict, List, Optional

import typer

from hvd.cli.common import JobsOption, flag, option
from hvd.core import console, lock, paths, process
from hvd.core.errors import HvdError
from hvd.host import machine
from hvd.matrix import attempt, cells, here, results
from hvd.matrix.attempt import Options, Skipped
from hvd.matrix.cells import Cell, Matrix
from hvd.matrix.results import Result
from hvd.report.text import duration, plural

#: Bytes that must be free before a cell: a framework, its download, and a build.
_ROOM = 8 * 2**30


def matrix(
    filters: Optional[List[str]] = option(
        "--filter AXIS=VALUE|TEXT",
        "Only cells with this value of an axis, or this text in their name; all must match.",
        None,
    ),
    shard: str = option(
        "--shard K/N", "Part K of N of the cells, one per machine or checkout.", "1/1"
    ),
    jobs: int = JobsOption,
    resume: bool = flag("--resume", "Skip cells whose result is up to date."),
    limit: int = option("--limit MINUTES", "Time limit per cell.", 60, min=1),
    examples: bool = flag("--examples", "Also run the examples on two ranks."),
    upstream_tests: bool = flag("--upstream-tests", "Also run Horovod's own tests."),
    cuda: bool = flag(
        "--cuda", "Accept CUDA builds of PyTorch if there are no others (gigabytes)."
    ),
    listed: bool = flag("--list", "List the cells; run none."),
) -> None:
    """Build and test the cells of ci/matrix.yaml and keep every result in docs/matrix.jsonl.

    For example: ./hvd dev matrix --filter framework=pytorch-2.13 --filter mpi=mpich-5

    Exit status: 1 if a cell fails unexpectedly.
    """
    known, before = cells.matrix(), results.load()
    asked = cells.chosen(known.cells, filters or [], shard)
    if not asked:
        raise HvdError("--filter and --shard leave no cell", "list them: ./hvd dev matrix --list")
    options = Options(jobs or machine.cores(), limit * 60.0, cuda, upstream_tests, examples)
    if listed:
        for cell in asked:
            last = before.get(cell.id)
            words = [last.result if last else "not tried"]
            if stale := last.stale(known, cell) if last else []:
                words.append(f"stale ({', '.join(stale)})")
            if missing := here.lacks(known, cell):
                words.append(f"not here: {missing}")
            console.out.print(f"{cell.id}: {'; '.join(words)}", markup=False)
        return
    if resume:
        asked = [each for each in asked if _todo(known, each, before.get(each.id), options)]
    _run(known, asked, before, options)


def _todo(known: Matrix, cell: Cell, before: Optional[Result], options: Options) -> bool:
    """Return whether a cell has no result, or one that is stale or lacks what is asked for."""
    if not before or before.stale(known, cell):
        return True
    wanted = known.frameworks[cell.framework].examples if options.examples else ()
    lacks = any(f"examples/{name}" not in before.checks for name in wanted)
    lacks |= options.upstream_tests and bool(known.tests(cell)) and not before.upstream
    return lacks and before.result == "passed"


def _run(known: Matrix, asked: List[Cell], before: Dict[str, Result], options: Options) -> None:
    """Try cells one after the other, whatever happens to one of them."""
    seconds = sum(before[cell.id].seconds for cell in asked if cell.id in before)
    console.note(f"{plural(len(asked), 'cell')}; last time they took {duration(seconds)}")
    outcomes, unexpected = collections.Counter[str](), False
    process.adopt_orphans()
    with lock.exclusive(attempt.state() / "lock", "runs the matrix in this checkout"):
        for number, cell in enumerate(asked, 1):
            if shutil.disk_usage(attempt.state()).free < _ROOM:
                raise HvdError(
                    f"less than 8 GiB are free in {paths.shorten(attempt.state())}",
                    "remove its directory venvs, or set HVD_STATE; then go on with --resume",
                )
            outcome = reason = ""
            try:
                if missing := here.lacks(known, cell):
                    raise Skipped(missing)
                keep = functools.partial(results.save, matrix=known)
                result = attempt.run(known, cell, options, keep)
                outcome, reason = result.result, f"{result.stage} {result.reason}".strip()
            except Skipped as error:
                outcome, reason = "skipped", error.message
            except Exception as error:
                # an internal error, or a full disk, is no result of the cell
                outcome, reason = "broken", repr(error)
                with open(attempt.log(cell), "a") as log:
                    traceback.print_exc(file=log)
            outcomes[outcome] += 1
            unexpected |= outcome == "broken" or (outcome == "failed" and not cell.fails)
            console.out.print(f"  {number}/{len(asked)} {outcome:<8} {cell.id}", markup=False)
            if reason:
                console.note(f"    {reason}")
            if outcome in ("failed", "broken"):
                console.note(f"    log: {paths.shorten(attempt.log(cell))}")
    console.note(", ".join(f"{count} {name}" for name, count in outcomes.items()))
    if outcomes["passed"] + outcomes["failed"]:
        console.note("to update the page: ./hvd dev docs")
    if unexpected:
        raise typer.Exit(1)
