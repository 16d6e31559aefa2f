"""Errors of a site.yaml that is not as the schema says: file, key and remedy."""

from __future__ import annotations

import copy
import datetime

import pytest
import yaml

from hvd.core import schema
from hvd.core.errors import HvdError
from hvd.model import site

GOOD = yaml.safe_load((site.file("summit")).read_text())
GPU = "partitions:batch"


def changed(path: str, value: object = None) -> dict:
    """`GOOD` with ``value`` at ``path``; without that key where it is None."""
    data = copy.deepcopy(GOOD)
    *parents, last = path.split(":")
    entry = data
    for name in parents:
        entry = entry[name]
    if value is None:
        del entry[last]
    else:
        entry[last] = value
    return data


def error(data: object) -> HvdError:
    with pytest.raises(HvdError) as caught:
        schema.check(data, site.SCHEMA, site.file("summit"))
    assert caught.value.message.startswith("environments/sites/summit/site.yaml")
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    ("path", "value", "remedy"),
    [
        ("launchr", "srun", "did you mean 'launcher'?"),
        (f"{GPU}:gpuz", 4, "did you mean 'gpu'?"),
        (f"{GPU}:lsf:ques", "debug", "did you mean 'queue'?"),
        ("fabric:alwys", {"set": {"A": "b"}, "source": "js-run"}, "did you mean 'always'?"),
        ("modules:xyzzy", "x", "use one of conflict, hierarchy, projection, source, tool"),
    ],
)
def test_a_misspelled_key_names_the_nearest(path, value, remedy) -> None:
    found = error(changed(path, value))
    assert f"key '{path}' is unknown" in found.message
    assert found.remedy == remedy


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("center", "add it. Who runs the machine."),
        (f"{GPU}:gpus", "add it. GPUs per node"),
        ("status:since", "add it."),
    ],
)
def test_a_missing_key_is_named(path, remedy) -> None:
    found = error(changed(path))
    assert f"key '{path}' is missing" in found.message
    assert found.remedy.startswith(remedy)


def test_a_key_that_is_not_required_may_be_missing() -> None:
    schema.check(changed("pitfalls"), site.SCHEMA, site.SCHEMA)


@pytest.mark.parametrize(
    ("path", "value", "message", "remedy"),
    [
        (
            "scheduler",
            "slrum",
            "'slrum' is none of slurm, lsf, pbs, none",
            "did you mean 'slurm'?",
        ),
        ("status:since", datetime.date(2024, 11, 15), "is not text", "put it in quotes"),
        (f"{GPU}:lsf:queue", 7, "7 is not text", "put it in quotes"),
        ("fabric:ddl:set", {"NCCL_LL_THRESHOLD": 0}, "0 is not text", "put it in quotes"),
        (f"{GPU}:gpus", "four", "'four' is not of type integer", "GPUs per node"),
        (f"{GPU}:gpus", -1, "'-1' is not large enough", "GPUs per node"),
        (f"{GPU}:gpus", True, "'True' is not of type integer", "GPUs per node"),
        ("partitions", [], "it is not of type object", "The kinds of node"),
        (f"{GPU}:source", [], "it is not valid", "A key of 'sources'"),
        ("name", "Summit X", "'Summit X' is not valid", "Lower-case"),
        ("status:since", "soon", "'soon' is not valid", "YYYY-MM-DD"),
    ],
)
def test_a_wrong_value(path, value, message, remedy) -> None:
    found = error(changed(path, value))
    assert f"key '{path}" in found.message and message in found.message
    assert remedy in found.remedy


def test_a_name_of_a_key_that_is_not_allowed() -> None:
    found = error(changed("allowed:srnu", {"source": "js-run"}))
    assert "key 'allowed:srnu' is not allowed" in found.message
    assert found.remedy == "did you mean 'srun'?"
    assert "is not allowed" in error(changed("fabric:ddl:set", {"a name": "1"})).message


@pytest.mark.parametrize("data", [None, [], "text"])
def test_no_mapping_at_all(data) -> None:
    assert "is not of type object" in error(data).message


def test_no_yaml_and_no_file(tmp_path) -> None:
    file = tmp_path / site.SITE
    with pytest.raises(HvdError, match="No such file"):
        schema.load(file, site.SCHEMA)
    file.write_text("a: [")
    with pytest.raises(HvdError, match="line ") as caught:
        schema.load(file, site.SCHEMA)
    assert caught.value.remedy == "fix the YAML syntax"
