"""``./hvd versions``."""

from __future__ import annotations

import pathlib
from typing import List, Optional, Sequence

import rich.markup
import typer

from hvd.build.pipeline import Options
from hvd.cli.common import flag, option, takes
from hvd.core import console, lock, paths
from hvd.core.errors import HvdError, nearest
from hvd.core.run import Run
from hvd.core.steps import Step
from hvd.matrix import definition, here, plan, result
from hvd.matrix.needs import Needs
from hvd.model.versions import pinned
from hvd.upkeep import lookup, pins, proposal
from hvd.upkeep.lookup import Lookup
from hvd.upkeep.proposal import Proposal

_COLOURS = {"works": "green", "fails": "red", "not known": "yellow"}


@takes("spack", "packages", "verbose")
def versions(
    options: Options,
    names: Optional[List[str]] = typer.Argument(
        None, metavar="[NAME]...", help="Distributions or repositories. \\[default: all]"
    ),
    check: bool = flag("--check", "Look up newer releases, and propose them."),
    run: bool = flag("--run", "Try the proposals in a copy of this checkout."),
    cuda: bool = flag("--cuda", "With --run: accept CUDA builds of frameworks (gigabytes)."),
    apply: bool = flag(
        "--apply", "Apply the proposals of the last --check, except those that failed."
    ),
    to: Optional[pathlib.Path] = option(
        "--to DIR",
        "Directory of proposals.json and proposals.md. \\[default: .hvd/versions]",
        None,
    ),
) -> None:
    """Show pinned versions, look up newer releases, and propose changes.

    For example: ./hvd versions --check --run torch

    A proposal names the lines to change, and the cells of the support matrix that show whether
    it works. Nothing in this checkout is changed without --apply.
    """
    directory = to or paths.state() / "versions"
    if run and not check:
        raise HvdError("--run tries what --check proposes", "./hvd versions --check --run")
    if check:
        found = _chosen(_look_up(options), names or [])
        if run:
            found = _tried(found, cuda, options)
        written = proposal.write(found, directory)
        _show(found)
        for path in written:
            console.note(paths.shorten(path))
    if apply:
        _apply(_chosen(proposal.load(directory), names or []))
    if not (check or apply):
        _pins()


def _look_up(options: Options) -> List[Proposal]:
    matrix = definition.matrix()
    needs = Needs(matrix, here.look(matrix, cuda=False))
    earlier = [each.cell for each in result.load_all() if each.tried]
    with console.step(Step("cells of the support matrix")):
        known = Lookup(matrix, plan.plan(needs, earlier))
    with console.step(Step("the Python index")):
        found = [*known.distributions(), *known.horovod(), *lookup.tool(known.releases)]
    with console.step(Step("Spack and its packages")):
        for kind in ("packages", "spack"):
            address = getattr(options.sources, kind) or pinned().git[kind]
            found += known.repository(kind, address)
    return found


def _chosen(found: Sequence[Proposal], names: Sequence[str]) -> List[Proposal]:
    known = {each.name for each in found} | {pin.name for pin in pins.load(definition.matrix())}
    known |= {"horovod", "spack", "spack-packages", paths.shorten(paths.REQUIREMENTS)}
    for name in names:
        if name not in known:
            raise HvdError(f"nothing that is pinned is called '{name}'", nearest(name, known))
    return [each for each in found if not names or each.name in names]


def _tried(found: Sequence[Proposal], cuda: bool, options: Options) -> List[Proposal]:
    current = Run("versions", "matrix", options.verbose)
    results = []
    with lock.exclusive(paths.state() / "lock"), current.stage("build"):
        for each in found:
            with current.step(each.id) as task:
                copy = paths.state() / "versions-checkout"
                results.append(proposal.attempt(each, copy, cuda, task))
                task.say(results[-1].verdict)
                if results[-1].verdict == "fails":
                    task.failed(results[-1].verdict)
    return results


def _show(found: Sequence[Proposal]) -> None:
    if not found:
        console.note("everything pinned is the newest")
        return
    table = console.table("What", "Pinned", "Newest", "Lines", "Cells", "Result")
    for each in found:
        lines = ", ".join(f"{line.file}:{line.line}" for line in each.changes)
        row = [each.name, each.pinned, each.newest, lines, str(len(each.cells))]
        colour = _COLOURS[each.verdict]
        table.add_row(*map(rich.markup.escape, row), f"[{colour}]{each.verdict}[/]")
    console.out.print(table)


def _pins() -> None:
    table = console.table("What", "Pinned", "Series", "Line")
    for pin in pins.load(definition.matrix()):
        table.add_row(pin.name, pin.version, pin.series, f"{paths.shorten(pin.file)}:{pin.line}")
    for pair in pinned().pairs:
        table.add_row("spack", pair.spack.commit[:12], pair.spack.version, pair.name)
        table.add_row("spack-packages", pair.packages.version, "", pair.name)
    console.out.print(table)


def _apply(found: Sequence[Proposal]) -> None:
    wanted = [each for each in found if each.verdict != "fails"]
    for each in found:
        if each not in wanted:
            console.note(f"{each.id} is left out: it fails")
    for path in proposal.apply(wanted, paths.ROOT):
        console.note(paths.shorten(path))
