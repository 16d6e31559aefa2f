"""PyTorch scripts train on a GPU, over NCCL, as one process over the whole batch does."""

from __future__ import annotations

import json
import sys

import pytest

from hvd.core import paths
from tests.real_builds import BuiltFrom
from tests.training.compared import compare
from tests.training.conftest import one_processes, ranks_of

MODULE = "cases_gpu"
#: Two ranks share the GPU, if there is one alone.
SIZE = 2


@pytest.fixture(scope="module")
def built():
    """What `./hvd gpu-check` built here."""
    for record in sorted((paths.state() / "built").glob("*-pip.json")):
        if json.loads(record.read_text())["gpu"] == "cuda":
            return BuiltFrom(record)
    pytest.skip("./hvd gpu-check has built nothing here")


@pytest.mark.parametrize("completion", ["", "1"])
@pytest.mark.parametrize("launcher", ["mpirun", "horovodrun --gloo"])
def test_as_one_process(built, tmp_path_factory, launcher, completion):
    settings = {"TRAINING_DEVICE": "cuda", "HOROVOD_ENABLE_ASYNC_COMPLETION": completion}
    wrong = {}
    with one_processes(built, tmp_path_factory, "worlds.OneProcess", **settings) as of:
        one = of(SIZE)
        with ranks_of(built, tmp_path_factory, launcher, SIZE, **settings) as ranks:
            for case in one.values(f"{MODULE}.names")[0]:
                try:
                    wrong[case] = compare(ranks, one, MODULE, case)
                except AssertionError as failed:
                    wrong[case] = str(failed)
                print(case, wrong[case][-2000:] or "right", file=sys.stderr, flush=True)
    assert not {case: text for case, text in wrong.items() if text}
