"""The version of a wheel says what it is for."""

from __future__ import annotations

import json

import pytest
from packaging.version import Version

from hvd.core.errors import HvdError
from hvd.deliver import wheel
from hvd.model.built import Software
from tests.builds import record

CUDA = {"gpu": "cuda", "operations": ("mpi", "nccl")}


@pytest.fixture
def bom(tmp_path):
    path = tmp_path / "bom.json"
    path.write_text(json.dumps({"components": [{"name": "cuda", "version": "13.0.1"}]}))
    return path


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, "torch2.13.0.openmpi4.1.8"),
        ({"frameworks": {"pytorch": "2.13.0+cpu"}}, "torch2.13.0.openmpi4.1.8"),
        ({"mpi": Software()}, "torch2.13.0.gloo"),
        ({"mpi": Software("cray-mpich", "9.1.0")}, "torch2.13.0.craympich9.1.0"),
        (
            {"frameworks": {"tensorflow": "2.15.1", "keras": "2.15.0"}},
            "keras2.15.0.tensorflow2.15.1.openmpi4.1.8",
        ),
        (CUDA, "torch2.13.0.openmpi4.1.8.cuda13.0.1.nccl"),
        # the version of HIP is not known
        ({**CUDA, "gpu": "rocm"}, "torch2.13.0.openmpi4.1.8.rocm.nccl"),
        ({"operations": ("ccl",)}, "torch2.13.0.openmpi4.1.8.ccl"),
    ],
)
def test_the_local_version(bom, changes, label):
    assert wheel.label(record(**changes), bom) == label
    # as pip reads it
    assert Version(f"0.28.1+{label}").local == label


def test_a_build_that_is_gone_is_built_again(bom, tmp_path):
    gone = record(variables={"PATH": "/nowhere"})
    with pytest.raises(HvdError, match="not installed") as refused:
        wheel.make(gone, bom, tmp_path / "wheels", tmp_path / "log")
    assert "./hvd build" in refused.value.remedy
    assert not (tmp_path / "wheels").exists()
