"""`./hvd gpu-check` as on the day a GPU is there: packed, and run without a network."""

import json
import os
import pathlib
import shutil
import tarfile

import pytest

from tests import needs
from tests.checkout import commit, copy_checkout, run, script

#: As in test_builds.py.
PYTHON = os.environ.get("HVD_CUDA_PYTHON")
#: Bytes that the archive may have.
MOST = 60 * 2**20
#: Programs of the system that the kit has to bring; ccache would spare the build.
LACKING = ("mpi", "ompi", "orte", "cmake", "ccache")


def bare(place: pathlib.Path) -> pathlib.Path:
    """Make a directory with nvcc, and the system's programs but those that are lacking."""
    script(place / "nvcc", f'exec {shutil.which("nvcc")} "$@"')
    for directory in ("/usr/bin", "/usr/sbin"):
        for program in pathlib.Path(directory).iterdir():
            if not (program.name.startswith(LACKING) or (place / program.name).exists()):
                (place / program.name).symlink_to(program)
    return place


def links(hvd: pathlib.Path) -> str:
    """The libraries that PyTorch's plugin names."""
    (plugin,) = (hvd / ".hvd" / "pip").glob("*/venv/lib/**/horovod/torch/mpi_lib_v2*.so")
    return run(["readelf", "--dynamic", plugin])


@pytest.mark.skipif(not PYTHON, reason="HVD_CUDA_PYTHON names no Python with a PyTorch for CUDA")
@needs.programs("nvcc", "readelf", "ip", "unshare")
def test_a_kit_builds_and_runs_or_says_that_there_is_no_gpu(tmp_path):
    needs.namespaces()
    checkout = copy_checkout(tmp_path / "hvd")
    commit(checkout.root)
    kit = tmp_path / "kit.tar"
    checkout.hvd("gpu-check", f"--pack={kit}", f"--python={PYTHON}")
    assert kit.stat().st_size < MOST
    with tarfile.open(kit) as archive:
        archive.extractall(tmp_path)
    prefix = tmp_path / "prefix"
    path = f"{pathlib.Path(PYTHON).parent}{os.pathsep}{bare(tmp_path / 'bin')}"
    command = [*needs.ALONE, tmp_path / "kit" / "install.sh", "--prefix", prefix, "--limit", 60]
    said = run(command, None, env={"HOME": str(tmp_path), "PATH": path})
    found = json.loads((prefix / "gpu-check.json").read_text())
    stages = {stage["name"]: stage["status"] for stage in found["report"]["stages"]}
    assert stages["build"] == "ok", said
    assert "openmpi" in found["report"]["versions"] and "nccl" in found["report"]["versions"]
    assert "libnccl.so.2" in links(prefix / "hvd")
    if found["gpus"]["names"]:
        assert stages["smoke"] == "ok" and found["bandwidth"], said
        assert all(check["passed"] for check in found["report"]["checks"])
    else:
        assert stages["smoke"] == "failed" and not found["report"]["checks"]
        assert "error: no GPU: " in said and "no GPU: " in found["text"][0]
