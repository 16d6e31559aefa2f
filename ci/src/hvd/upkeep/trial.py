"""Try a proposal: its cells of the support matrix, in a copy of this checkout with its changes."""

from __future__ import annotations

import dataclasses
import pathlib

from hvd.core import process
from hvd.core.errors import CommandFailed
from hvd.core.steps import Step
from hvd.matrix import result
from hvd.upkeep import change, checkout
from hvd.upkeep.proposal import Proposal, Tried


def run(proposal: Proposal, copy: pathlib.Path, cuda: bool, task: Step) -> Proposal:
    """Return ``proposal`` with the results of its cells.

    Args:
        copy: where to keep the copy, whose frameworks serve the next one.
        cuda: accept CUDA builds of frameworks.
    """
    checkout.copy(copy)
    change.apply(proposal.changes, copy)
    results = [_try(cell, copy, cuda, task) for cell in proposal.cells]
    return dataclasses.replace(proposal, results=tuple(results))


def _try(cell: str, copy: pathlib.Path, cuda: bool, task: Step) -> Tried:
    task.say(cell)
    file = copy / "docs" / "matrix" / f"{cell}.json"
    # what an earlier run found is not news
    file.unlink(missing_ok=True)
    words = ["matrix", "--filter", cell, *(["--cuda"] if cuda else [])]
    environment = checkout.variables(copy)
    try:
        process.run(checkout.command(*words), log=task.log, cwd=copy, env=environment, check=False)
        made = result.load(file) if file.exists() else None
    except CommandFailed as error:
        return Tried(cell, "broken", error.message)
    if made is None:
        lines = [line for line in process.tail(task.log).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error:")]
        return Tried(cell, "broken", (errors or lines or ["it has no result"])[-1])
    return Tried(cell, made.result, made.reason, made.total)
