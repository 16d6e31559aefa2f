"""Compare what the recipe allows with what came of building it."""

from __future__ import annotations

from typing import Iterable, List

from hvd.matrix.definition import Matrix
from hvd.matrix.result import Result
from hvd.model import specs
from hvd.model.recipe import Recipe


def disagreements(matrix: Matrix, results: Iterable[Result], recipe: Recipe) -> List[str]:
    """Where a bound of the recipe forbids what works, or allows what does not, without a note.

    A note is an entry of ``expected`` in ``ci/matrix.yaml``.

    Args:
        matrix: whose cells the results are of.
        results: what came of them.
        recipe: the one to compare with.

    Returns:
        A line for each.
    """
    found = []
    for each in results:
        if each.result not in ("passed", "failed"):
            continue
        said = refusal(recipe, each.spec)
        if each.result == "passed" and said:
            found.append(f"{each.cell.id}: passed, and the recipe refuses it: {said}")
        if each.result == "passed" and matrix.expects(each.cell):
            found.append(f"{each.cell.id}: passed, and ci/matrix.yaml expects it to fail")
        if each.result == "failed" and not said and not matrix.expects(each.cell):
            found.append(
                f"{each.cell.id}: failed, and the recipe allows it: {each.reason}; add a bound to "
                "package.py, or to `expected` in ci/matrix.yaml why it is allowed"
            )
    return found


def refusal(recipe: Recipe, spec: str) -> str:
    """The first thing that ``recipe`` has against ``spec``; empty where it has nothing."""
    asked = recipe.complete(specs.parse(spec))
    for directive in recipe.refusals(asked):
        return str(directive.keywords.get("msg") or " or ".join(directive.arguments))
    return ""
