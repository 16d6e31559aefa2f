"""Which cells are tried, which the recipe refuses, and which a machine cannot try."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib

import pytest
from packaging.requirements import Requirement

from hvd.core.errors import HvdError
from hvd.host.mpi import Mpi
from hvd.matrix import definition, plan
from hvd.matrix import needs as needs_module
from hvd.matrix.definition import AXES
from hvd.matrix.needs import Needs
from hvd.matrix.plan import Planned
from hvd.model import recipe, specs
from tests.matrix import HERE, cell

matrix = definition.load()
needs = Needs(matrix, HERE)


@pytest.fixture(scope="module")
def planned():
    return plan.plan(needs)


def test_what_was_tried_stays_when_the_recipe_refuses_more(planned, monkeypatch):
    tried = [each.cell for each in planned if each.action == "try"]
    assert set(plan.plan(needs, tried)) == set(planned)

    def refuses(self, values, known=Needs.refusal):
        newly = values.get("horovod") == "0.27.0" and "compiler" in values
        return "new" if newly else known(self, values)

    monkeypatch.setattr(Needs, "refusal", refuses)
    others = {each.cell for each in plan.plan(needs) if each.action == "try"}
    left = {each.cell for each in plan.plan(needs, tried) if each.action == "try"}
    still = {each for each in tried if each.horovod != "0.27.0"}
    assert still <= left and not any(each.horovod == "0.27.0" for each in left)
    assert others - left


def test_every_cell_that_must_be_is_there_once_and_each_time(planned):
    assert plan.plan(needs) == planned
    assert len({each.cell.id for each in planned}) == len(planned)
    for part in matrix.must:
        assert any(each.cell.matches(part) for each in planned), part


def test_what_is_tried_exists_and_is_not_refused_and_the_rest_has_a_reason(planned):
    horovod = recipe.load("py-horovod")
    for each in planned:
        values = each.cell.values
        spec = horovod.complete(specs.parse(needs.concrete(values)))
        assert needs.exists(values), each
        assert bool(list(horovod.refusals(spec))) == (each.action == "refused"), each
        if each.action != "refused":
            assert bool(needs.lacks(values)) == (each.action == "skipped"), each
        assert bool(each.reason) == (each.action != "try")


def test_a_pytorch_for_cuda_is_not_tried_beside_a_tensorflow_for_cpus():
    cells = plan.plan(Needs(matrix, dataclasses.replace(HERE, no_cuda="")))
    both = [each for each in cells if each.cell.framework == "pytorch-tensorflow"]
    assert {each.cell.python for each in both if each.action == "try"} == {"3.11"}
    (refused,) = [each for each in both if each.action == "refused"]
    assert "depends on py-tensorflow+cuda, but there is py-tensorflow" in refused.reason
    alone = {each.cell.python for each in cells if each.cell.framework == "pytorch-2.13"}
    assert {"3.10", "3.12", "3.13"} <= alone


@pytest.mark.parametrize("axis", ["python", "mpi"])
def test_pairs_that_can_be_together_are_tried_together(planned, axis):
    """By another way than the one that chooses: every combination of what decides."""
    tried = [each.cell for each in planned if each.action == "try"]
    block = matrix.blocks["depth"]
    for name, value in itertools.product(block["framework"], block[axis]):
        part = {"framework": name, axis: value}
        deciding = {each: matrix.axes[each] for each in ("python", "mpi", "controllers")}
        deciding[axis] = (value,)
        rows = [dict(zip(deciding, values)) for values in itertools.product(*deciding.values())]
        usual = cell(framework=name).values
        can = any(needs.possible({**usual, **row}) for row in rows)
        assert can == any(each.matches(part) for each in tried), part


def test_a_missing_interpreter_is_one_skip_with_its_reason():
    pythons = {version: path for version, path in HERE.pythons.items() if version != "3.13"}
    planned = plan.plan(Needs(matrix, dataclasses.replace(HERE, pythons=pythons)))
    # the cells of must are all there; one stands for all others of a block
    missing = [each for each in planned if each.cell.python == "3.13"]
    assert {each.action for each in missing} == {"skipped"}
    assert {each.reason for each in missing} == {"Python 3.13 is not on this machine"}
    must = [part for part in matrix.must if part.get("python") == "3.13"]
    assert len(must) <= len(missing) <= len(must) + len(matrix.blocks)


def test_what_was_tried_on_another_machine_is_skipped_here():
    elsewhere = [cell(compiler="gcc-14"), cell(compiler="gcc-14", engine="spack-1.2")]
    gone = cell(framework="pytorch-0.4")
    planned = plan.plan(needs, [*elsewhere, gone])
    found = [each for each in planned if each.cell in (*elsewhere, gone)]
    assert found == [Planned(each, "skipped", "g++-14 is not on PATH") for each in elsewhere]


def test_a_cell_that_cannot_exist_is_an_error_that_names_the_line():
    part = {"framework": "tensorflow-1.15", "python": "3.13"}
    with pytest.raises(HvdError, match="key 'must:0'"):
        plan.plan(Needs(dataclasses.replace(matrix, must=(part,)), HERE))


def test_the_spec_of_a_cell():
    old = cell(horovod="0.20.3", framework="tensorflow-1.15", python="3.7", cmake="cmake-4")
    requirements = needs.requirements(old.values)
    assert "tensorflow-cpu==1.15.0" in requirements and "setuptools==59.6.0" in requirements
    text = needs.concrete(old.values)
    assert text.startswith("py-horovod@0.20.3 +mpi+gloo ~rocm ~cuda")
    for word in ("^py-tensorflow@1.15.0~cuda", "^python@3.7", "^openmpi@4.1.8", "%gcc@12.2.0"):
        assert word in text.split()
    spec = specs.parse(text)
    assert spec.variants["frameworks"] == {"tensorflow"} and spec.variants["cuda"] is False
    cuda = needs.spec(cell(python="3.12").values)
    assert specs.parse(cuda).variants["cuda_arch"] == {"90"}


def test_a_result_is_stale_when_something_in_it_changes(monkeypatch):
    one = needs.inputs(cell())
    others = [cell(**{axis: matrix.axes[axis][1]}) for axis in AXES if axis != "compiler"]
    assert len({one, *map(needs.inputs, others)}) == len(others) + 1

    def without(*patches):
        horovod = recipe.load("py-horovod")
        left = tuple(d for d in horovod.directives if not set(patches) & set(d.arguments))
        return dataclasses.replace(horovod, directives=left)

    monkeypatch.setattr(needs_module, "horovod", lambda: without("gloo.patch"))
    # the patch is for other releases
    assert needs.inputs(cell()) == one
    monkeypatch.setattr(needs_module, "horovod", lambda: without("cxx-standard.patch"))
    assert needs.inputs(cell()) != one


def test_another_machines_result_is_compared_with_what_was_built_there():
    other = Needs(matrix, dataclasses.replace(HERE, compiler=("gcc", "14.2.0")))
    assert needs.inputs(cell()) != other.inputs(cell())
    assert needs.inputs(cell(), other.concrete(cell().values)) == other.inputs(cell())


def test_spark_needs_java():
    spark = {"framework": "spark-3", "python": "3.11"}
    without = Needs(matrix, dataclasses.replace(HERE, java=""))
    assert needs.lacks(spark) == "" and "java" in without.lacks(spark)
    assert without.lacks({**spark, "framework": "ray-2"}) == ""


def test_a_cell_has_what_the_recipe_declares_and_nothing_more():
    """Horovod 0.24 and 0.25 import packaging, 0.23 does not; 0.19 alone imports six."""

    def names(horovod, framework="pytorch-2.13", python="3.9"):
        values = {"framework": framework, "python": python, "controllers": "both"}
        texts = needs.requirements({**values, "horovod": horovod})
        return {Requirement(text).name for text in texts}

    has = {version: names(version) for version in ("0.28.1", "0.24.3", "0.23.0", "0.19.5")}
    assert {v for v, names in has.items() if "packaging" in names} == {"0.28.1", "0.24.3"}
    assert {v for v, names in has.items() if "six" in names} == {"0.19.5"}
    assert all("cloudpickle" in names for names in has.values())
    # the checks compare with it, and only Horovod on Spark asks for it
    assert "numpy" in names("0.28.1", python="3.11")
    # TensorFlow 2.6 has a six of its own
    older = names("0.23.0", "tensorflow-2.6")
    assert "six" in older and "cffi" not in older


def test_filters_hold_together():
    values = itertools.product(("3.9", "3.11"), ("mpich-5", "none"))
    cells = [Planned(cell(python=python, mpi=mpi)) for python, mpi in values]

    def left(*filters):
        return [(each.cell.python, each.cell.mpi) for each in plan.chosen(cells, filters)]

    assert left("python=3.9") == [("3.9", "mpich-5"), ("3.9", "none")]
    assert left("python=3.9,3.11", "mpich") == [("3.9", "mpich-5"), ("3.11", "mpich-5")]
    assert left("mpi=moon") == [] and len(left()) == 4
    with pytest.raises(HvdError, match="'pyton'"):
        left("pyton=3.9")


def test_parts_hold_every_cell_once_and_share_no_framework(planned):
    parts = [plan.shard(planned, f"{number}/3") for number in (1, 2, 3)]
    ids = [each.cell.id for part in parts for each in part]
    assert sorted(ids) == sorted(each.cell.id for each in planned)
    shares = [{(each.cell.framework, each.cell.python) for each in part} for part in parts]
    assert sum(map(len, shares)) == len(set().union(*shares))
    sizes = [len(part) for part in parts]
    assert max(sizes) <= 1.2 * min(sizes)
    assert plan.shard(planned, "1/1") == planned
    assert all(part == sorted(part, key=planned.index) for part in parts)


@pytest.mark.parametrize("text", ["3/2", "0/2", "1/0", "1", "a/b", "-1/2"])
def test_what_is_no_part_is_an_error(text):
    with pytest.raises(HvdError, match=f"--shard: '{text}'"):
        plan.shard([], text)


def test_a_cell_for_rocm_is_tried_where_its_hip_is():
    rocm = cell(framework="tensorflow-rocm-2.14", operations="rocm-7.2")
    spec = specs.parse(needs.spec(rocm.values))
    assert spec.variants["rocm"] is True and spec.variants["cuda"] is False
    assert spec.variants["amdgpu_target"] == {"gfx90a", "gfx942"}
    assert needs.refusal(rocm.values) == ""
    assert "HIP 7.2 is not on PATH" in needs.lacks(rocm.values)
    there = Needs(matrix, dataclasses.replace(HERE, rocm="7.2"))
    assert there.lacks(rocm.values) == "" and there.lacks({"operations": "rocm-5.7"})
    # its framework is no other cell's
    assert "py-tensorflow~rocm" in needs.refusal({**rocm.values, "operations": "default"})


def test_a_processor_of_another_family_is_not_tried_here():
    power = cell(framework="pytorch-1.13", mpi="system", target="power9le")
    assert "target=power9le" in needs.asked(power, cuda=False)
    assert "target=" not in needs.asked(cell(), cuda=False)
    library = Mpi("openmpi", "4.1.4", pathlib.Path("/usr"))
    emulated = Needs(matrix, dataclasses.replace(HERE, family="ppc64le", mpi=library))
    assert "./hvd debian" in needs.lacks({"target": "power9le"})
    assert emulated.lacks({"target": "power9le"}) == ""
    assert emulated.lacks({"target": "neoverse_v2"})
    # the operating system's Python has it all
    assert emulated.requirements(power.values) == []
    assert power.id.endswith("_pip_power9le") and cell().id.endswith("_pip")
