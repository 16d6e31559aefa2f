"""Whole builds that need gigabytes of wheels: Horovod compiled by nvcc for NCCL."""

import json
import os

import pytest

from tests import needs
from tests.checkout import copy_checkout, run

SPEC = "py-horovod@0.28.1 +mpi+gloo+nccl+cuda~rocm cuda_arch={arch} frameworks:=pytorch"
#: An interpreter with a PyTorch for CUDA, which the tests do not install by themselves.
PYTHON = os.environ.get("HVD_CUDA_PYTHON")


@pytest.mark.skipif(not PYTHON, reason="HVD_CUDA_PYTHON names no Python with a PyTorch for CUDA")
@needs.programs("nvcc")
@pytest.mark.parametrize("arch", ["90"])
def test_nccl_operations_are_compiled_and_run_where_there_is_a_gpu(tmp_path, arch):
    """Without one two ranks sum in host memory, and the report says what was not tried."""
    checkout = copy_checkout(tmp_path / "hvd")
    spec = SPEC.format(arch=arch)
    checkout.hvd("run", "local-hvd", "--engine=pip", f"--python={PYTHON}", f"--spec={spec}")
    (file,) = (checkout.state / "reports").glob("local-hvd-*-pip/report.json")
    checks = {check["name"]: check for check in json.loads(file.read_text())["checks"]}
    left_out = checks["check-build"]["details"].get("left_out", [])
    if run([PYTHON, "-c", "import torch; print(torch.cuda.is_available())"]).split() == ["True"]:
        assert {"mpirun, GPU", "horovodrun --gloo, GPU"} <= checks.keys()
    else:
        assert [row["operation"] for row in left_out] == ["horovod.torch on GPUs"]
