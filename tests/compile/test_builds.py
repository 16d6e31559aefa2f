"""Whole builds that need gigabytes of wheels: Horovod compiled by nvcc for NCCL."""

import os
import shutil

import pytest

from tests.conftest import copy_checkout, unmet

SPEC = "py-horovod@0.28.1 +mpi+gloo+nccl+cuda~rocm~ddl~ccl cuda_arch={arch} frameworks:=pytorch"


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
def test_nccl_operations_are_compiled_and_the_build_still_runs_on_cpus(
    cuda_python, tmp_path, arch
):
    """No GPU is needed: check-build lists NCCL, and two ranks sum in host memory."""
    checkout = copy_checkout(tmp_path / "hvd")
    arguments = ["run", "local-hvd", "--engine=pip", f"--python={cuda_python}"]
    done = checkout.hvd(*arguments, f"--spec={SPEC.format(arch=arch)}")
    assert done.returncode == 0, done.stdout
