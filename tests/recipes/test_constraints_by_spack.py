"""Every constraint of the recipe, evaluated by Spack itself; see tests/constraints.py."""

import json
import pathlib

import pytest

from tests.constraints import CASES, complete

EVALUATE = pathlib.Path(__file__).with_name("evaluate_constraints.py")


@pytest.fixture(scope="session")
def said(spack, py_horovod, tmp_path_factory):
    """Spec to what Spack says against it, for the specs of all cases."""
    texts = [complete(py_horovod, t) for case in CASES for t in (case.refused, case.taken)]
    scratch = tmp_path_factory.mktemp("constraints")
    (scratch / "specs.json").write_text(json.dumps(texts))
    done = spack.run("python", EVALUATE, scratch / "specs.json", log=scratch / "log", timeout=300)
    return dict(zip(texts, json.loads(done.output.splitlines()[-1])))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.refused)
def test_it_is_refused_with_the_way_out(said, py_horovod, case):
    messages = said[complete(py_horovod, case.refused)]
    assert [message for message in messages if case.message in message], messages


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.taken)
def test_its_neighbour_is_taken(said, py_horovod, case):
    assert said[complete(py_horovod, case.taken)] == []
