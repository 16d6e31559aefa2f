"""Operations of TensorFlow, callbacks and optimizers of Keras: right, or an error everywhere."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("within", [False, True], ids=["eagerly", "in a function"])
def test_gradients_of_operations(keras_ranks, within):
    assert keras_ranks.values("keras_parts.gradients", within=within) == [[]] * keras_ranks.size


def test_graphs_outlive_the_ranks_of_an_elastic_job(keras_ranks):
    size = keras_ranks.size
    found = keras_ranks.values("keras_parts.gradients", within=True, elastic=True)
    assert found == [[]] * size
    mean = (size - 1) / 2
    assert keras_ranks.values("keras_parts.normalization_after_one_rank") == [[mean]] * size


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "grouped"])
@pytest.mark.parametrize("op", ["Min", "Max", "Product", "Adasum"])
def test_gradients_that_are_refused(keras_ranks, op, grouped):
    # three ranks are of Gloo, which has no Adasum
    if op != "Adasum" or keras_ranks.size == 2:
        for told in keras_ranks.values("keras_parts.refuse_gradient", op=op, grouped=grouped):
            assert "Use hvd.allgather()" in told


def test_sets_that_are_not_registered_are_refused(keras_ranks):
    """process-set-id.patch"""
    for told in keras_ranks.values("keras_parts.sets_that_are_not_registered"):
        assert len(told) == 12 and all("hvd.add_process_set()" in each for each in told), told


def test_operations_in_functions(keras_ranks):
    """Each rank runs them, whatever it does with the results, and none waits for another."""
    size = keras_ranks.size
    sums = [[2.0 * size] * 2] * size
    assert keras_ranks.values("keras_parts.constant_of_a_graph") == sums
    used = [size, *[1.0] * (size - 1)]
    assert keras_ranks.values("keras_parts.result_that_one_rank_uses") == used
    assert keras_ranks.values("keras_parts.captured_tensor") == [[size, 2.0 * size]] * size
    assert keras_ranks.values("keras_parts.operations_of_a_function") == [[3, 0]] * size
    square = [9.0 * size, 6.0 * size]
    assert keras_ranks.values("keras_parts.operation_without_a_name") == [square] * size


@pytest.mark.parametrize("within", [False, True], ids=["eagerly", "in functions"])
def test_ranks_use_other_variables_from_step_to_step(keras_ranks, within):
    """tf-missing-gradients.patch; in functions, each has variables of its own."""
    size = keras_ranks.size
    right = [[1.0, None], [1.0, pytest.approx(1 / size)], [1.0, 1.0], [1.0, None]]
    found = keras_ranks.values("keras_parts.variables_that_ranks_use", within=within)
    assert found == [right] * size


def test_functions_have_other_gradients_of_the_same_variables(keras_ranks):
    """tf-missing-gradients.patch"""
    size = keras_ranks.size
    some, all_ranks = [1.0, pytest.approx(1 / size)], [1.0, 1.0]
    right = [all_ranks, [1.0, None], all_ranks, some, all_ranks, some]
    found = keras_ranks.values("keras_parts.functions_with_other_gradients")
    assert found == [right] * size


@pytest.mark.parametrize("within", [False, True], ids=["eagerly", "in functions"])
def test_passes_have_other_gradients(keras_ranks, within):
    found = keras_ranks.values("keras_parts.passes_with_other_gradients", within=within)
    assert found == [pytest.approx([1.0, 0.8, 0.9])] * keras_ranks.size


def test_passes_begin_anew_after_a_reset(keras_ranks):
    found = keras_ranks.values("keras_parts.passes_after_a_reset")
    assert found == [[0, 0, 0, 1]] * keras_ranks.size


def test_what_tensorflow_1_had(keras_ranks):
    size = keras_ranks.size
    assert keras_ranks.values("keras_parts.broadcast_object_fn") == [{"rank": 1}] * size
    assert keras_ranks.values("keras_parts.hook_of_a_session") == [5.0] * size


def test_adasum_forks_no_process(keras_ranks):
    for found in keras_ranks.values("keras_parts.adasum_of_a_function"):
        if keras_ranks.size == 2:
            # of equal vectors, their mean
            assert found == [1.0, 2.0]
        else:
            assert "non-power of 2" in found


def test_a_minimum_while_ranks_have_joined_is_refused(keras_ranks):
    for told in keras_ranks.values("keras_parts.min_after_join"):
        assert "Allreduce with Min, Max or Product is not supported with Join" in told


def test_exchanges_that_are_refused(keras_ranks):
    """alltoall-splits.patch"""
    words = ["at least one dimension", "plits", "plits", "must not be negative"]
    for told in keras_ranks.values("keras_parts.refused_exchanges"):
        assert len(told) == len(words)
        assert all(word in each for word, each in zip(words, told)), told


def test_compression_leaves_bfloat16(keras_ranks):
    for found in keras_ranks.values("keras_parts.compression_of_large_bfloat16"):
        assert found == pytest.approx(1e5, rel=0.01)


def test_sums_of_a_tape_are_not_summed_again(keras_ranks):
    for told in keras_ranks.values("keras_parts.sum_of_sums"):
        assert "would sum them again: use one of them" in told


def test_fit_warns_of_an_optimizer_that_is_not_distributed(keras_ranks):
    assert keras_ranks.values("keras_parts.local_optimizers") == [[1, 0, 0]] * keras_ranks.size


def test_elastic_functions_raise_what_is_not_horovods(keras_ranks):
    wanted = ["HorovodInternalError", "UnknownError"]
    found = keras_ranks.values("keras_parts.errors_of_elastic_functions")
    assert found == [wanted] * keras_ranks.size


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("a_group_whose_first_tensors_differ", "Mismatched ALLREDUCE tensor shapes"),
        ("different_numbers_of_gradients", "Ranks have different numbers of gradients"),
        ("different_metrics", "Give each rank the same validation data"),
        (
            "different_numbers_of_variables",
            "Build the model and the optimizer on each rank",
        ),
    ],
)
def test_ranks_that_differ_get_an_error(keras_ranks, part, words):
    for told in keras_ranks.values(f"keras_parts.{part}"):
        assert words in told


def test_metrics_are_numbers_of_python(keras_ranks):
    size = keras_ranks.size
    found = keras_ranks.values("keras_parts.mean_of_metrics")
    mean = pytest.approx((size - 1) / 2)
    assert found == [["float", mean, [1.0, mean]]] * size


def test_state_of_variables_is_synchronized(keras_ranks):
    """By sync(), and not when the state is made, which a worker that comes later does alone."""
    found = keras_ranks.values("keras_parts.synchronized_state")
    assert found == [[rank + 1.0, 1.0, 0] for rank in range(keras_ranks.size)]


def test_what_is_no_optimizer_is_refused(keras_ranks):
    for told in keras_ranks.values("keras_parts.refused_optimizers"):
        assert len(told) == 3
        assert all("takes an optimizer of Keras" in each for each in told[:2])
        assert "distributed already" in told[2]


def test_optimizers_and_callbacks_of_keras_3(keras_ranks):
    size = keras_ranks.size
    assert keras_ranks.values("keras_parts.by_name") == ["adam"] * size
    assert keras_ranks.values("keras_parts.momentum_with_loss_scale") == [[4.0, 0.25]] * size
    assert keras_ranks.values("keras_parts.momentum_without_the_rate") == [8.0] * size
    assert keras_ranks.values("keras_parts.made_of_a_configuration") == [[False, True]] * size
    assert keras_ranks.values("keras_parts.best_model_checkpoint") == ["True"] * size
