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
    ("path", "value", "message", "remedy"),
    [
        # a key that is unknown, with the nearest one
        ("launchr", "srun", "is unknown", "'launcher'"),
        (f"{GPU}:gpuz", 4, "is unknown", "'gpu'"),
        (f"{GPU}:lsf:ques", "debug", "is unknown", "'queue'"),
        ("fabric:alwys", {"set": {"A": "b"}, "source": "js-run"}, "is unknown", "'always'"),
        ("modules:xyzzy", "x", "is unknown", "conflict, hierarchy, projection, source, tool"),
        ("allowed:srnu", {"source": "js-run"}, "is not allowed", "'srun'"),
        ("fabric:ddl:set:a name", "1", "is not allowed", "lower-case"),
        # one that is missing, with what it is
        ("center", None, "is missing", "Who runs the machine."),
        (f"{GPU}:gpus", None, "is missing", "GPUs per node"),
        ("status:since", None, "is missing", "add it."),
        # a value of the wrong kind
        ("scheduler", "slrum", "'slrum' is none of slurm, lsf, pbs, none", "'slurm'"),
        ("status:since", datetime.date(2024, 11, 15), "is not text", "put it in quotes"),
        (f"{GPU}:lsf:queue", 7, "7 is not text", "put it in quotes"),
        ("fabric:ddl:set:NCCL_LL_THRESHOLD", 0, "0 is not text", "put it in quotes"),
        (f"{GPU}:gpus", "four", "'four' is not of type integer", "GPUs per node"),
        (f"{GPU}:gpus", -1, "'-1' is not large enough", "GPUs per node"),
        (f"{GPU}:gpus", True, "'True' is not of type integer", "GPUs per node"),
        ("partitions", [], "it is not of type object", "The kinds of node"),
        (f"{GPU}:source", [], "it is not valid", "A key of 'sources'"),
        ("name", "Summit X", "'Summit X' is not valid", "Lower-case"),
        ("status:since", "soon", "'soon' is not valid", "YYYY-MM-DD"),
    ],
)
def test_what_is_wrong_is_named_with_its_key_and_what_to_do(path, value, message, remedy) -> None:
    found = error(changed(path, value))
    assert f"key '{path}'" in found.message and message in found.message
    assert remedy in found.remedy


def test_a_key_that_is_not_required_may_be_missing() -> None:
    schema.check(changed("pitfalls"), site.SCHEMA, site.SCHEMA)


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
    assert caught.value.remedy == "fix the YAML"
