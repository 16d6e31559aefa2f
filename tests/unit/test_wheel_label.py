"""The version of a wheel says what it is for."""

import json

import pytest
from packaging.version import Version

from hvd.core.errors import HvdError
from hvd.deliver import wheel
from hvd.model.built import Software
from tests.builds import record

CUDA = {"gpu": "cuda", "operations": ("mpi", "nccl")}
KERAS = {"frameworks": {"tensorflow": "2.15.1", "keras": "2.15.0"}}


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"frameworks": {"pytorch": "2.13.0+cpu"}}, "torch2.13.0.openmpi4.1.8"),
        ({"mpi": Software()}, "torch2.13.0.gloo"),
        ({"mpi": Software("cray-mpich", "9.1.0")}, "torch2.13.0.craympich9.1.0"),
        (KERAS, "keras2.15.0.tensorflow2.15.1.openmpi4.1.8"),
        (CUDA, "torch2.13.0.openmpi4.1.8.cuda13.0.1.nccl"),
        # the version of HIP is not known
        ({**CUDA, "gpu": "rocm"}, "torch2.13.0.openmpi4.1.8.rocm.nccl"),
        ({"operations": ("ccl",)}, "torch2.13.0.openmpi4.1.8.ccl"),
    ],
)
def test_the_local_version(tmp_path, changes, label):
    bom = tmp_path / "bom.json"
    bom.write_text(json.dumps({"components": [{"name": "cuda", "version": "13.0.1"}]}))
    assert wheel.label(record(**changes), bom) == label
    # as pip reads it
    assert Version(f"0.28.1+{label}").local == label
    gone = record(variables={"PATH": "/nowhere"}, **changes)
    with pytest.raises(HvdError, match="Horovod is not installed"):
        wheel.make(gone, bom, tmp_path / "wheels", tmp_path / "log")
    assert not (tmp_path / "wheels").exists()
