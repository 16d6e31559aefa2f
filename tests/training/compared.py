"""Results of ranks against those of one process."""

from __future__ import annotations

import ast
import functools
import pathlib
from typing import Dict, List, Tuple

from tests.training.world import STEPS

#: Orders of the samples in which one process adds up: how far its results are apart is what an
#: order of summation does.
ORDERS = (1, 2, 3)
Result = Dict[str, List[float]]


def cases(module: str) -> List[str]:
    """The cases of a module but for those that it makes of all optimizers of a framework."""
    parsed = ast.parse(pathlib.Path(__file__).with_name(f"{module}.py").read_text())
    return [
        each.name
        for each in parsed.body
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


#: Those of cases that have not asked for the number of ranks: they are the same for all.
_of_any_size: Dict[Tuple[str, str], tuple] = {}


@functools.cache
def references(one, module: str, case: str) -> tuple:
    """What rounds off the results of a case, and those of one process in several orders."""
    if (module, case) in _of_any_size:
        return _of_any_size[module, case]
    one.values("world.asked_for_size")
    calls = [(f"{module}.rounding", {})]
    calls += [(f"{module}.reference", {"order": order}) for order in (0, *ORDERS)]
    found = tuple(one.values(name, case=case, **options)[0] for name, options in calls)
    if not any(one.values("world.asked_for_size")):
        _of_any_size[module, case] = found
    return found


def compare(ranks, one, module: str, case: str) -> str:
    """What is wrong with the results of ranks in a case of a module; empty if nothing is."""
    epsilon, reference, *others = references(one, module, case)
    results = ranks.values(f"{module}.run", case=case)
    wrong = [differences(each, reference, others, epsilon, ranks.size) for each in results]
    if any(each != results[0] for each in results[1:]):
        wrong.append("the ranks differ")
    return "; ".join(dict.fromkeys(filter(None, wrong)))


def compare_others(ranks, one, module: str, at_least: int) -> Dict[str, str]:
    """What is wrong, by case, in those that a module makes of all optimizers of a framework."""
    every = sorted(set(one.values(f"{module}.names")[0]) - set(cases(module)))
    assert len(every) >= at_least, every
    wrong = {case: compare(ranks, one, module, case) for case in every}
    return {case: text for case, text in wrong.items() if text}
