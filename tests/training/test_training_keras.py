"""With Keras, ranks end with the weights and optimizer of one process over the whole batch."""

from __future__ import annotations

import pytest

from tests.training.compared import cases, compare, compare_others

MODULE = "cases_keras"


@pytest.mark.parametrize("case", cases(MODULE))
def test_as_one_process(keras_ranks, one_keras_process, case):
    wrong = compare(keras_ranks, one_keras_process(keras_ranks.size), MODULE, case)
    assert not wrong, wrong


def test_every_optimizer_of_keras(keras_ranks, one_keras_process):
    one = one_keras_process(keras_ranks.size)
    assert not compare_others(keras_ranks, one, MODULE, 13)
