"""specs: the part of Spack's spec language that is used without Spack."""

import pytest

from hvd.core.errors import HvdError
from hvd.model import specs


@pytest.mark.parametrize(
    ("version", "constraint", "expected"),
    [
        ("0.28.1", "0.28", True),
        ("0.28.1", ":0.28", True),
        ("0.28.1", ":0.28.0", False),
        ("0.28.1", "0.24:", True),
        ("0.9", "0.24:", False),
        ("3.1.3", ":3.1.2,4:", False),
        ("4.1.4", ":3.1.2,4:", True),
        ("master", "0.28.1:", True),
        ("3.1.3", "=3.1.3", True),
        ("3.1.30", "3.1.3", False),
    ],
)
def test_ranges_are_spacks(version, constraint, expected):
    assert specs.version_in(version, constraint) is expected


def test_parse_and_print():
    spec = specs.parse("py-horovod@0.28.1 +mpi~gloo frameworks=pytorch,tensorflow ^openmpi@4:")
    assert spec.name == "py-horovod"
    assert spec.variants["mpi"] is True and spec.variants["gloo"] is False
    assert spec.variants["frameworks"] == {"pytorch", "tensorflow"}
    assert spec.dependencies["openmpi"].versions == "4:"
    assert specs.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("+mpi", True),
        ("~mpi", False),
        ("+nccl", False),
        ("frameworks=pytorch", True),
        ("frameworks=tensorflow", False),
        ("^openmpi@3.1.3", False),
        ("^[virtuals=mpi] openmpi@4:", True),
        ("^mpich", False),
        ("@0.28.1 ^py-torch~cuda", True),
        ("%gcc@12:", True),
    ],
)
def test_satisfies(condition, expected):
    spec = specs.parse("py-horovod@0.28.1+mpi~nccl frameworks=pytorch,keras ^openmpi@4.1.8")
    spec.dependencies["py-torch"] = specs.parse("py-torch@2.13.0~cuda")
    spec.dependencies["gcc"] = specs.parse("gcc@12.2.0")
    assert spec.satisfies(specs.parse(condition)) is expected


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("++mpi~~gloo", "+mpi~gloo"),
        ("frameworks==pytorch", "frameworks:=pytorch"),
        ("%c,cxx=gcc@12", "%gcc@12"),
        ("%%gcc@12", "%gcc@12"),
        ("^[virtuals=mpi] openmpi@4", "^openmpi@4"),
    ],
)
def test_ways_to_write_a_clause(text, same):
    assert specs.parse(f"py-horovod {text}") == specs.parse(f"py-horovod {same}")


@pytest.mark.parametrize("text", ["py-horovod@0.28.1 !mpi", "py-horovod mpi"])
def test_what_is_not_understood_is_named(text):
    with pytest.raises(HvdError) as caught:
        specs.parse(text)
    assert "mpi" in caught.value.message and caught.value.remedy
