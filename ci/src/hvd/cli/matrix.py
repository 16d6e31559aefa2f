"""``./hvd matrix``."""

from __future__ import annotations

import collections
from typing import List, Mapping, Optional, Sequence

import typer

from hvd.cli.common import JobsOption, flag, option
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.host import machine
from hvd.matrix import attempt, definition, here, page, plan, result, runner
from hvd.matrix.attempt import Options
from hvd.matrix.definition import Matrix
from hvd.matrix.here import Here
from hvd.matrix.needs import Needs
from hvd.matrix.plan import Planned
from hvd.matrix.result import Result


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
    examples: bool = flag("--examples", "Also run the examples, on one rank and on two."),
    upstream_tests: bool = flag("--upstream-tests", "Also run Horovod's own tests."),
    cuda: bool = flag(
        "--cuda", "Accept CUDA builds of frameworks if there are no others (gigabytes)."
    ),
    listed: bool = flag("--list", "List the cells; run none."),
    make_page: bool = flag(
        "--page", "Write docs/support-matrix.md from the results; run no cell."
    ),
    check: bool = flag("--check", "Fail if the page is out of date; write nothing."),
) -> None:
    """Build and test the cells of ci/matrix.yaml and keep every result.

    For example: ./hvd matrix --filter framework=pytorch-2.13 --filter mpi=mpich-5

    Results are files in docs/matrix, from which --page writes docs/support-matrix.md.
    Exit status: 1 if a cell fails unexpectedly.
    """
    asked = definition.matrix()
    if make_page or check:
        for path in page.write(asked, check):
            console.note(paths.shorten(path))
        return
    needs = Needs(asked, here.look(asked, cuda))
    earlier = {each.cell.id: each for each in result.load_all()}
    planned = plan.plan(needs, [each.cell for each in earlier.values() if each.tried])
    cells = plan.shard(plan.chosen(planned, filters or []), shard)
    if not cells:
        raise HvdError("--filter and --shard leave no cell", "list them: ./hvd matrix --list")
    options = Options(jobs or machine.cores(), float(limit * 60), upstream_tests, examples)
    held = [
        each
        for each in cells
        if runner.current(needs, each.cell, earlier.get(each.cell.id), options)
    ]
    if listed:
        _list(needs, cells, held, earlier)
        return
    todo = [each for each in cells if not (resume and each in held)]
    _announce(todo, len(cells) - len(todo), needs.here, list(earlier.values()))
    results = runner.run(needs, todo, options)
    if len(cells) == len(planned):
        result.forget({each.cell.id for each in planned})
    _summarize(asked, results)
    if runner.unexpected(asked, results):
        raise typer.Exit(1)


def _list(
    needs: Needs,
    cells: Sequence[Planned],
    held: Sequence[Planned],
    earlier: Mapping[str, Result],
) -> None:
    for each in cells:
        before = earlier.get(each.cell.id)
        known = before.result if before else "not tried"
        if before and before.tried:
            current = each in held
            if each.action != "try":
                digests = needs.inputs(each.cell), needs.inputs(each.cell, before.spec)
                current = before.inputs in digests
                known = f"{each.action}; last result {known}"
            known += "" if current else ", stale"
        elif each.action != "try":
            known = each.action
        console.out.print(f"{each.cell.id}: {known}  {each.reason}".rstrip(), markup=False)


def _announce(
    todo: Sequence[Planned], left_out: int, found: Here, earlier: Sequence[Result]
) -> None:
    """Print the number of cells to try and an estimate of the time."""
    counts = collections.Counter(each.action for each in todo)
    parts = [f"{counts['try']} to try"]
    parts += [f"{counts[name]} {name}" for name in ("refused", "skipped") if counts[name]]
    parts += [f"{left_out} as before"] if left_out else []
    console.note(f"cells: {', '.join(parts)}")
    cache = found.compiler_cache or "none (ccache is not on PATH): each compiles it all"
    console.note(f"compiler cache: {cache}")
    cells = [each.cell for each in todo if each.action == "try"]
    if cells:
        console.note(runner.estimate(cells, earlier, bool(found.ccache)))


def _summarize(asked: Matrix, results: Sequence[Result]) -> None:
    counts = collections.Counter(each.result for each in results)
    console.note(", ".join(f"{count} {name}" for name, count in counts.items()))
    for each in runner.unexpected(asked, results):
        console.note(f"log: {paths.shorten(attempt.log(each.cell))}")
    if any(each.tried for each in results):
        console.note("the page: ./hvd matrix --page")
