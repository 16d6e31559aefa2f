"""The wrapper that gives each rank a GPU of its own."""

from __future__ import annotations

import os
import subprocess

import pytest

from hvd.launch import methods


@pytest.mark.parametrize(("rank", "gpu"), enumerate("3210321"))
def test_a_rank_has_the_gpu_of_its_place(rank, gpu) -> None:
    """As `$((num_gpus - 1 - PMI_LOCAL_RANK % num_gpus))` of set_affinity_gpu_polaris.sh."""
    command = [methods.GPU_RANK, "CUDA_VISIBLE_DEVICES", "PMI_LOCAL_RANK", "3,2,1,0"]
    command += ["sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES, $*"', "sh", "a b", "*"]
    environ = {"PATH": os.environ["PATH"], "PMI_LOCAL_RANK": str(rank)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("", f"{gpu}, a b *\n")


@pytest.mark.parametrize("value", [None, "", "x"])
def test_a_rank_without_a_number_is_refused(value) -> None:
    command = [methods.GPU_RANK, "CUDA_VISIBLE_DEVICES", "PMI_LOCAL_RANK", "3,2,1,0", "true"]
    environ = {"PATH": os.environ["PATH"]}
    environ.update({} if value is None else {"PMI_LOCAL_RANK": value})
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 2 and "gpu-rank: PMI_LOCAL_RANK" in done.stderr
