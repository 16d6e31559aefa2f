"""Horovod's ranks end with the weights, state and buffers of one process over the whole batch."""

from __future__ import annotations

import pytest

from tests.training.compared import cases, compare, compare_others, differences
from tests.training.jobs import ranks_of

MODULE = "cases_torch"


@pytest.mark.parametrize("case", cases(MODULE))
def test_as_one_process(ranks, one_process, case):
    wrong = compare(ranks, one_process(ranks.size), MODULE, case)
    assert not wrong, wrong


def test_every_optimizer_of_pytorch(ranks, one_process):
    assert not compare_others(ranks, one_process(ranks.size), MODULE, 20)


@pytest.mark.parametrize("size", [2, 3])
def test_as_distributed_data_parallel(built_horovod, tmp_path_factory, one_process, size):
    """The reference is right where PyTorch's own ranks have the same result."""
    one = one_process(size)
    with ranks_of(built_horovod, tmp_path_factory, "", size, world="worlds.Ddp") as ddp:
        every = one.values("cases_torch.names", ddp=True)[0]
        wrong = {case: compare(ddp, one, MODULE, case) for case in every}
    assert not any(wrong.values()), {case: text for case, text in wrong.items() if text}


@pytest.mark.parametrize("size", [2, 4])
def test_adasum_by_its_formula(built_horovod, tmp_path_factory, one_process, size):
    with ranks_of(built_horovod, tmp_path_factory, "mpirun", size) as ranks:
        for function in ("cases_adasum.of_tensors", "cases_adasum.of_steps"):
            (wanted,) = one_process(size).values(function)
            for result in ranks.values(function):
                wrong = differences(result, wanted, [wanted], 2.0**-48, size)
                assert not wrong, f"{function}: {wrong}"
