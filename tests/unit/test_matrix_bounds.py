"""No bound of the recipe forbids what works, or allows what does not, without a note."""

from __future__ import annotations

import dataclasses

import pytest

from hvd.matrix import definition, needs, result
from hvd.matrix.definition import Expected
from hvd.model import recipe
from hvd.model.recipe import Directive
from tests import matrix as made

matrix = definition.load()
py_horovod = recipe.load("py-horovod")
NOTE = Expected({"framework": "pytorch-2.13", "python": "3.11"}, "known", "https://a.b/1")
NOTED = dataclasses.replace(matrix, expected=(NOTE,))


def disagreements(matrix, results, recipe):
    """A line for each result that contradicts the recipe or ``expected`` in ci/matrix.yaml."""
    found = []
    for each in results:
        refused = needs.refusal(recipe, each.spec)
        if each.result == "passed" and refused:
            found.append(f"{each.cell.id}: passed, and the recipe refuses it: {refused}")
        if each.result == "passed" and matrix.expects(each.cell):
            found.append(f"{each.cell.id}: passed, and ci/matrix.yaml expects it to fail")
        if each.result == "failed" and not refused and not matrix.expects(each.cell):
            found.append(
                f"{each.cell.id}: failed, and the recipe allows it: {each.reason}; add a bound to "
                "package.py, or to `expected` in ci/matrix.yaml why it is allowed"
            )
    return found


def test_the_recipe_agrees_with_every_result_of_this_checkout():
    assert disagreements(matrix, result.load_all(), py_horovod) == []


@pytest.mark.parametrize(
    "bound",
    [
        Directive("conflicts", ("^py-torch@2.13:",), {"msg": "PyTorch 2.13 is too new"}, ()),
        Directive("depends_on", ("py-torch@2.14:",), {}, ("frameworks=pytorch",)),
    ],
)
def test_a_bound_has_to_fit_the_results(bound):
    bounded = dataclasses.replace(py_horovod, directives=(*py_horovod.directives, bound))
    assert disagreements(matrix, [made.result("passed")], py_horovod) == []
    assert disagreements(matrix, [made.result("passed")], bounded)
    assert disagreements(matrix, [made.result("failed")], bounded) == []
    untried = [made.result("skipped"), made.result("refused")]
    assert disagreements(matrix, untried, bounded) == []


def test_an_expected_failure_has_to_fit_the_results():
    assert disagreements(matrix, [made.result("failed")], py_horovod)
    assert disagreements(NOTED, [made.result("failed")], py_horovod) == []
    assert disagreements(NOTED, [made.result("passed")], py_horovod)
    elsewhere = made.result("failed", made.cell(python="3.10"))
    assert disagreements(NOTED, [elsewhere], py_horovod)
