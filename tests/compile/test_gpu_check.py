"""tests/gpu/check.py as on the day a GPU is there: packed, and run without a network."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from tests import needs
from tests.checkout import commit, copy_checkout, run, script

PYTHON = os.environ.get("HVD_CUDA_PYTHON")
#: Programs of the system that the kit has to bring; ccache would spare the build.
LACKING = ("mpi", "ompi", "orte", "cmake", "ccache")


@pytest.mark.skipif(not PYTHON, reason="HVD_CUDA_PYTHON names no Python with a PyTorch for CUDA")
@needs.programs("nvcc", "readelf", "ip", "unshare")
def test_a_kit_builds_and_runs_or_says_that_there_is_no_gpu(tmp_path):
    needs.namespaces()
    checkout = copy_checkout(tmp_path / "hvd")
    commit(checkout.root)
    check = [shutil.which("python3"), checkout.root / "tests" / "gpu" / "check.py"]
    run([*check, "--pack", tmp_path / "kit.tar", "--python", PYTHON], env=checkout.environment())
    run(["tar", "xf", "kit.tar"], cwd=tmp_path)
    bare = tmp_path / "bin"
    script(bare / "nvcc", f'exec {shutil.which("nvcc")} "$@"')
    for program in pathlib.Path("/usr/bin").iterdir():
        if not (program.name.startswith(LACKING) or (bare / program.name).exists()):
            (bare / program.name).symlink_to(program)
    path = f"{pathlib.Path(PYTHON).parent}{os.pathsep}{bare}{os.pathsep}/usr/sbin"
    command = [*needs.ALONE, tmp_path / "kit" / "check", "--python", PYTHON, "--limit", 60]
    done = subprocess.run(list(map(str, command)), env={"HOME": str(tmp_path), "PATH": path})
    found = json.loads((tmp_path / "kit" / "gpu-check.json").read_text())
    stages = {stage["name"]: stage["status"] for stage in found["stages"]}
    assert stages["build"] == "ok" and {"openmpi", "nccl"} <= found["versions"].keys(), found
    (plugin,) = (tmp_path / "kit" / "hvd" / ".hvd" / "pip").glob("**/horovod/torch/mpi_lib_v2*.so")
    assert "libnccl.so.2" in run(["readelf", "--dynamic", plugin])
    if found["gpus"]:
        assert done.returncode == 0 and found["bandwidth"] and len(found["training"]) == 4, found
    else:
        # what was not tried is no success
        assert done.returncode == 13 and found["text"][-1] == "training: NOT RUN", found
