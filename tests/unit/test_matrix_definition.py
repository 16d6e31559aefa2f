"""ci/matrix.yaml: what it says, and what is said where it is wrong."""

from __future__ import annotations

import re

import pytest

from hvd.core.errors import HvdError
from hvd.matrix import definition
from hvd.model import recipe
from hvd.model.versions import pinned

TEXT = definition.FILE.read_text()
matrix = definition.load()


def test_its_releases_are_the_recipe_s_and_no_pin_is_repeated():
    releases = recipe.load("py-horovod").versions()
    assert set(matrix.axes["horovod"]) <= set(releases)
    assert matrix.axes["horovod"][0] == next(iter(releases))
    framework = pinned().framework
    known = {framework.mpi, framework.cmake, *pinned().container.mpi.values()}
    known |= {text for each in framework.sets.values() for text in each.requirements}
    # the same release in another set, for another framework's sake, is another matter
    assert not [text for text in known if f"requirement: {text}}}" in TEXT]
    assert matrix.choices["mpi"]["openmpi-4.1"].requirement == framework.mpi


def test_what_most_users_have_must_be_tried():
    parts = [{"framework": "pytorch-2.13", "python": f"3.{minor}"} for minor in range(10, 14)]
    parts += [{"framework": name} for name in ("tensorflow-2.15", "tensorflow-2.21")]
    parts += [{"mpi": name} for name in ("openmpi-5.0", "mpich-5", "intel-2021")]
    for part in parts:
        assert any(part.items() <= each.items() for each in matrix.must), part


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"3.10", "3.12"', '"3.10", 3.12', "key 'axes:python:2'"),
        ("{framework: pytorch-2.13, mpi: mpich-5}", "{framework: pytorch-9, mpi: mpich-5}",
         "key 'must:8:framework': 'pytorch-9'"),
        ("framework:cmake", "framework:camke", "framework:camke"),
        ("No module named 'distutils'", "(distutils", "key 'causes:distutils:pattern'"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_key(tmp_path, old, new, named):
    file = tmp_path / "matrix.yaml"
    file.write_text(TEXT)
    assert definition.load(file).axes == matrix.axes
    assert old in TEXT or old.replace("'", "''") in TEXT
    wrong = TEXT.replace(old, new).replace(old.replace("'", "''"), new)
    file.write_text(wrong)
    with pytest.raises(HvdError, match=re.escape(named)) as caught:
        definition.load(file)
    assert "matrix.yaml" in caught.value.message
