"""Horovod's ranks end with the weights, state and buffers of one process over the whole batch."""

from __future__ import annotations

import ast
import pathlib
from typing import Dict, List

import pytest

from tests.training.conftest import ranks_of

pytestmark = pytest.mark.xdist_group("built")

#: Orders of the samples in which one process adds up: how far its results are apart is what an
#: order of summation does.
ORDERS = (1, 2, 3)
#: Steps of a case. In each, a gradient is rounded on its rank, in the sum over the ranks, and in
#: the mean, by half a unit each.
STEPS = 4
Result = Dict[str, List[float]]


def cases() -> List[str]:
    """The cases of cases_torch.py but for those that it makes of all of PyTorch's optimizers."""
    module = ast.parse(pathlib.Path(__file__).with_name("cases_torch.py").read_text())
    return [
        each.name
        for each in module.body
        if isinstance(each, ast.FunctionDef)
        and any("case" in ast.unparse(decorator) for decorator in each.decorator_list)
    ]


def differences(
    result: Result, reference: Result, others: List[Result], epsilon: float, size: int
) -> str:
    """What of a result is further from the reference than an order of summation brings it.

    Four times the largest of the distances between results of one process are allowed, which are
    a sample of what an order does, and the roundings of ``size`` ranks in each step.
    """
    if result.keys() != reference.keys():
        return f"it has {sorted(result.keys() ^ reference.keys())}, or one process has"
    wrong = []
    for name, wanted in reference.items():
        spread = max(abs(a - b) for each in others for a, b in zip(each[name], wanted))
        allowed = 4 * spread + STEPS * (size + 1) / 2 * epsilon * max(
            map(abs, wanted), default=0.0
        )
        found = max(abs(a - b) for a, b in zip(result[name], wanted))
        # not so for NaN
        if not found <= allowed:
            wrong.append(f"{name} is off by {found:.3g}, and {allowed:.3g} is allowed")
    return "; ".join(wrong)


def compare(ranks, one, case: str, run: str = "cases_torch.run") -> str:
    """What is wrong with the results of ranks; empty if nothing is."""
    (epsilon,) = one.values("cases_torch.rounding", case=case)
    reference, *others = (
        one.values("cases_torch.reference", case=case, order=order)[0] for order in (0, *ORDERS)
    )
    results = ranks.values(run, case=case)
    wrong = [differences(each, reference, others, epsilon, ranks.size) for each in results]
    if any(each != results[0] for each in results[1:]):
        wrong.append("the ranks differ")
    return "; ".join(dict.fromkeys(filter(None, wrong)))


@pytest.mark.parametrize("case", cases())
def test_as_one_process(ranks, one_process, case):
    wrong = compare(ranks, one_process(ranks.size), case)
    assert not wrong, wrong


def test_every_optimizer_of_pytorch(ranks, one_process):
    one = one_process(ranks.size)
    every = sorted(set(one.values("cases_torch.names")[0]) - set(cases()))
    assert len(every) > 20, every
    wrong = {case: compare(ranks, one, case) for case in every}
    assert not any(wrong.values()), {case: text for case, text in wrong.items() if text}


@pytest.mark.parametrize("size", [2, 3])
def test_as_distributed_data_parallel(built_horovod, tmp_path_factory, one_process, size):
    """The reference is right where PyTorch's own ranks have the same result."""
    one = one_process(size)
    with ranks_of(built_horovod, tmp_path_factory, "", size, world="Ddp") as ddp:
        every = one.values("cases_torch.names", ddp=True)[0]
        wrong = {case: compare(ddp, one, case) for case in every}
    assert not any(wrong.values()), {case: text for case, text in wrong.items() if text}


@pytest.mark.parametrize("size", [2, 4])
def test_adasum_by_its_formula(built_horovod, tmp_path_factory, one_process, size):
    with ranks_of(built_horovod, tmp_path_factory, "mpirun", size) as ranks:
        for function in ("cases_adasum.of_tensors", "cases_adasum.of_steps"):
            (wanted,) = one_process(size).values(function)
            for result in ranks.values(function):
                wrong = differences(result, wanted, [wanted], 2.0**-48, size)
                assert not wrong, f"{function}: {wrong}"
