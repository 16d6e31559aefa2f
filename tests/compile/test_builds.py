"""Whole builds that need gigabytes of wheels: Horovod compiled by nvcc for NCCL."""

import json
import os
import shutil
import subprocess

import pytest

from tests.conftest import copy_checkout, unmet

SPEC = "py-horovod@0.28.1 +mpi+gloo+nccl+cuda~rocm cuda_arch={arch} frameworks:=pytorch"


@pytest.fixture
def cuda_python(request):
    """An interpreter with a PyTorch for CUDA, which the tests do not install by themselves."""
    python = os.environ.get("HVD_CUDA_PYTHON")
    if not python:
        unmet(request.config, "compile", "HVD_CUDA_PYTHON names no Python with a PyTorch for CUDA")
    if not shutil.which("nvcc"):
        unmet(request.config, "compile", "nvcc is not on PATH")
    return python


@pytest.mark.parametrize("arch", ["90"])
def test_nccl_operations_are_compiled_and_run_where_there_is_a_gpu(cuda_python, tmp_path, arch):
    """Without one two ranks sum in host memory, and the report says what was not tried."""
    checkout = copy_checkout(tmp_path / "hvd")
    arguments = ["run", "local-hvd", "--engine=pip", f"--python={cuda_python}"]
    done = checkout.hvd(*arguments, f"--spec={SPEC.format(arch=arch)}")
    assert done.returncode == 0, done.stdout
    (file,) = (checkout.root / ".hvd" / "reports").glob("local-hvd-*-pip/report.json")
    checks = {check["name"]: check for check in json.loads(file.read_text())["checks"]}
    left_out = checks["check-build"]["details"].get("left_out", [])
    ask = [cuda_python, "-c", "import torch; print(torch.cuda.is_available())"]
    if subprocess.run(ask, capture_output=True, text=True).stdout.split() == ["True"]:
        assert {"mpirun, GPU", "horovodrun --gloo, GPU"} <= checks.keys()
    else:
        assert [row["operation"] for row in left_out] == ["horovod.torch on GPUs"]
