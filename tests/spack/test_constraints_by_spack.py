"""Every constraint of the recipe, evaluated by Spack itself; see tests/constraints.py."""

import pytest

from tests.constraints import CASES, complete


@pytest.fixture(scope="session")
def said(evaluate, py_horovod):
    """Spec to what Spack says against it, for the specs of all cases."""
    return evaluate(
        [complete(py_horovod, t) for case in CASES for t in (case.refused, case.taken)]
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.refused)
def test_it_is_refused_with_the_way_out(said, py_horovod, case):
    messages = said[complete(py_horovod, case.refused)]
    assert [message for message in messages if case.message in message], messages


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.taken)
def test_its_neighbour_is_taken(said, py_horovod, case):
    assert said[complete(py_horovod, case.taken)] == []
