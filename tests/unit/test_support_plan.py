"""Which cells are tried, which the recipe refuses, and which a machine cannot try."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from packaging.requirements import Requirement

from hvd.core.errors import HvdError
from hvd.matrix import definition, plan, wanted
from hvd.matrix.definition import AXES
from hvd.model import recipe, specs
from tests.matrix import HERE, cell

matrix = definition.load()


@pytest.fixture(scope="module")
def planned():
    return plan.plan(matrix, HERE)


def test_the_plan_is_the_same_each_time(planned):
    assert plan.plan(matrix, HERE) == planned
    assert len({each.cell.id for each in planned}) == len(planned)


def test_what_was_tried_stays_when_the_recipe_refuses_more(planned, monkeypatch):
    tried = [each.cell for each in planned if each.action == "try"]
    assert set(plan.plan(matrix, HERE, tried)) == set(planned)

    def refuses(text, partly=False, known=wanted.refusal):
        return "new" if "@0.27.0" in text and "%" in text else known(text, partly)

    monkeypatch.setattr(wanted, "refusal", refuses)
    others = {each.cell for each in plan.plan(matrix, HERE) if each.action == "try"}
    left = {each.cell for each in plan.plan(matrix, HERE, tried) if each.action == "try"}
    still = {each for each in tried if each.horovod != "0.27.0"}
    assert still <= left and not any(each.horovod == "0.27.0" for each in left)
    assert others - left


def test_every_cell_that_must_be_is_there(planned):
    for part in matrix.must:
        assert any(each.cell.matches(part) for each in planned), part


def test_what_is_tried_exists_and_is_not_refused_and_the_rest_has_a_reason(planned):
    horovod = recipe.load("py-horovod")
    for each in planned:
        values = dataclasses.asdict(each.cell)
        spec = specs.parse(wanted.concrete(matrix, values, HERE))
        spec = horovod.complete(spec)
        assert wanted.exists(matrix, values), each
        assert bool(list(horovod.refusals(spec))) == (each.action == "refused"), each
        if each.action != "refused":
            assert bool(HERE.lacks(matrix, values)) == (each.action == "skipped"), each
        assert bool(each.reason) == (each.action != "try")


def test_an_older_horovod_with_a_newer_tensorflow_is_refused_in_the_recipe_s_words(planned):
    reasons = [
        each.reason
        for each in planned
        if each.action == "refused" and each.cell.matches({"horovod": "0.26.1"})
    ]
    said = "Horovod @0.25:0.26 does not support TensorFlow 2.12 and later"
    assert [reason for reason in reasons if said in reason]


def test_a_pytorch_for_cuda_is_not_tried_beside_a_tensorflow_for_cpus():
    cells = plan.plan(matrix, dataclasses.replace(HERE, cuda=True, no_cuda=""))
    both = [each for each in cells if each.cell.framework == "pytorch-tensorflow"]
    assert {each.cell.python for each in both if each.action == "try"} == {"3.11"}
    (refused,) = [each for each in both if each.action == "refused"]
    assert "depends on py-tensorflow+cuda, but there is py-tensorflow" in refused.reason
    alone = {each.cell.python for each in cells if each.cell.framework == "pytorch-2.13"}
    assert {"3.10", "3.12", "3.13"} <= alone


def test_pairs_that_can_be_together_are_tried_together(planned):
    """By another way than the one that chooses: all frameworks with all Pythons and all MPIs."""
    tried = [each.cell for each in planned if each.action == "try"]
    block = matrix.blocks["depth"]
    for axis in ("python", "mpi"):
        for name, value in itertools.product(block["framework"], block[axis]):
            part = {"framework": name, axis: value}
            can = any(
                not wanted.refusal(wanted.concrete(matrix, values, HERE))
                and not HERE.lacks(matrix, values)
                for values in _cells(part)
            )
            assert can == any(each.matches(part) for each in tried), part


def _cells(part):
    """Cells with ``part``: of the other axes those that decide something."""
    deciding = {axis: matrix.axes[axis] for axis in ("python", "mpi", "controllers")}
    choices = {axis: (part[axis],) if axis in part else v for axis, v in deciding.items()}
    usual = dataclasses.asdict(cell(framework=part["framework"]))
    for values in itertools.product(*choices.values()):
        row = {**usual, **dict(zip(choices, values))}
        if wanted.exists(matrix, row):
            yield row


def test_a_missing_interpreter_is_one_skip_with_its_reason():
    pythons = {version: path for version, path in HERE.pythons.items() if version != "3.13"}
    less = dataclasses.replace(HERE, pythons=pythons)
    planned = plan.plan(matrix, less)
    # what must be is there by name; of the rest, one stands for all
    missing = [each for each in planned if each.cell.python == "3.13"]
    assert {each.action for each in missing} == {"skipped"}
    assert {each.reason for each in missing} == {"Python 3.13 is not on this machine"}
    must = [part for part in matrix.must if part.get("python") == "3.13"]
    assert len(must) <= len(missing) <= len(must) + len(matrix.blocks)


def test_a_cell_that_cannot_exist_is_an_error_that_names_the_line():
    part = {"framework": "tensorflow-1.15", "python": "3.13"}
    wrong = dataclasses.replace(matrix, must=(part,))
    with pytest.raises(HvdError, match="key 'must:0': there is no such cell"):
        plan.plan(wrong, HERE)


def test_what_a_cell_asks_for():
    old = cell(horovod="0.20.3", framework="tensorflow-1.15", python="3.7", cmake="cmake-4")
    values = dataclasses.asdict(old)
    asked = wanted.requirements(matrix, values)
    assert "tensorflow-cpu==1.15.0" in asked and "setuptools==59.6.0" in asked
    text = wanted.concrete(matrix, values, HERE)
    assert text.startswith("py-horovod@0.20.3 +mpi+gloo ~rocm ~cuda")
    for word in ("^py-tensorflow@1.15.0~cuda", "^python@3.7", "^openmpi@4.1.8", "%gcc@12.2.0"):
        assert word in text.split()
    spec = specs.parse(text)
    assert spec.variants["frameworks"] == {"tensorflow"} and spec.variants["cuda"] is False
    cuda = wanted.spec(matrix, dataclasses.asdict(cell(python="3.12")))
    assert specs.parse(cuda).variants["cuda_arch"] == {"90"}


def test_a_result_is_stale_when_something_in_it_changes(monkeypatch):
    one = wanted.inputs(matrix, cell(), HERE)
    assert one == wanted.inputs(matrix, cell(), HERE)
    others = [cell(**{axis: matrix.axes[axis][1]}) for axis in AXES if axis != "compiler"]
    assert len({one, *(wanted.inputs(matrix, each, HERE) for each in others)}) == len(others) + 1
    horovod = wanted.horovod()
    fewer = tuple(d for d in horovod.directives if "gloo.patch" not in d.arguments)
    older = tuple(d for d in fewer if "cxx-standard.patch" not in d.arguments)
    changed = dataclasses.replace(horovod, directives=fewer)
    monkeypatch.setattr(wanted, "horovod", lambda: changed)
    # the patch is for other releases
    assert wanted.inputs(matrix, cell(), HERE) == one
    monkeypatch.setattr(wanted, "horovod", lambda: dataclasses.replace(horovod, directives=older))
    assert wanted.inputs(matrix, cell(), HERE) != one


def test_spark_needs_java():
    spark = {"framework": "spark-3", "python": "3.11"}
    assert HERE.lacks(matrix, spark) == ""
    without = dataclasses.replace(HERE, java="")
    assert without.lacks(matrix, spark) == "spark-3: java is not on PATH"
    assert without.lacks(matrix, {**spark, "framework": "ray-2"}) == ""


def test_a_cell_has_what_the_recipe_declares_and_nothing_more():
    """Horovod 0.24 and 0.25 import packaging, 0.23 does not; 0.19 alone imports six."""
    values = {"framework": "pytorch-2.13", "python": "3.9", "controllers": "both"}
    has = {}
    for version in ("0.28.1", "0.24.3", "0.23.0", "0.19.5"):
        texts = wanted.requirements(matrix, {**values, "horovod": version})
        has[version] = {Requirement(text).name for text in texts}
    assert {v for v, names in has.items() if "packaging" in names} == {"0.28.1", "0.24.3"}
    assert {v for v, names in has.items() if "six" in names} == {"0.19.5"}
    assert all("cloudpickle" in names for names in has.values())
    # the checks compare with it, and only Horovod on Spark asks for it
    newer = wanted.requirements(matrix, {**values, "horovod": "0.28.1", "python": "3.11"})
    assert [text for text in newer if text.startswith("numpy")]
    # TensorFlow 2.6 wants its six
    older = {**values, "framework": "tensorflow-2.6", "horovod": "0.23.0"}
    assert "six==1.15.0" in wanted.requirements(matrix, older)
    assert not [text for text in wanted.requirements(matrix, older) if text.startswith("cffi")]
