"""No bound of the recipe forbids what works, or allows what does not, without a note."""

from __future__ import annotations

import dataclasses

from hvd.matrix import bounds, definition, result
from hvd.matrix.definition import Expected
from hvd.model import recipe
from hvd.model.recipe import Directive
from tests import matrix as made

matrix = definition.load()
py_horovod = recipe.load("py-horovod")
WRONG = Directive(
    "conflicts", ("^py-torch@2.13:",), {"msg": "PyTorch 2.13 is too new"}, ("@0.28:",)
)
NEWER = Directive("depends_on", ("py-torch@2.14:",), {}, ("frameworks=pytorch",))


def planted(*directives: Directive) -> recipe.Recipe:
    """The recipe with these bounds besides its own."""
    return dataclasses.replace(py_horovod, directives=py_horovod.directives + directives)


def test_the_recipe_agrees_with_every_result_of_this_checkout():
    assert bounds.disagreements(matrix, result.load_all(), py_horovod) == []


def test_a_bound_that_forbids_what_passed_is_found():
    results = [made.result("passed")]
    assert bounds.disagreements(matrix, results, py_horovod) == []
    for bound, said in ((WRONG, "PyTorch 2.13 is too new"), (NEWER, "py-torch@2.14:")):
        (line,) = bounds.disagreements(matrix, results, planted(bound))
        assert line.startswith(results[0].cell.id) and line.endswith(f"refuses it: {said}")


def test_what_failed_must_be_refused_or_have_a_note():
    failed = made.result("failed", reason="a.cc:1: error: x")
    (line,) = bounds.disagreements(matrix, [failed], py_horovod)
    assert failed.cell.id in line and "a.cc:1: error: x" in line and "the recipe allows it" in line
    assert bounds.disagreements(matrix, [failed], planted(WRONG)) == []
    note = Expected({"framework": "pytorch-2.13", "python": "3.11"}, "known", "https://a.b/1")
    noted = dataclasses.replace(matrix, expected=(note,))
    assert bounds.disagreements(noted, [failed], py_horovod) == []
    (line,) = bounds.disagreements(noted, [made.result("passed")], py_horovod)
    assert line.endswith("passed, and ci/matrix.yaml expects it to fail")
    elsewhere = dataclasses.replace(
        noted, expected=(dataclasses.replace(note, cells={"python": "3.9"}),)
    )
    assert len(bounds.disagreements(elsewhere, [failed], py_horovod)) == 1


def test_what_was_not_built_says_nothing_of_the_recipe():
    results = [made.result("skipped", reason="no MPI"), made.result("refused", reason="no")]
    assert bounds.disagreements(matrix, results, planted(WRONG)) == []
