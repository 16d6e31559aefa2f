"""An elastic job with Keras goes on at the batch, when a worker is lost in an epoch."""

import json
import pathlib

import numpy as np
import pytest

from tests.build import elastic

PROGRAM = pathlib.Path(__file__).with_name("elastic_keras.py")
PLACE = r"epoch (?P<epoch>\d+), batch (?P<batch>\d+), step (?P<step>\d+)"
#: Of the batch in which the worker was lost, the other one may have all or nothing.
BATCHES = {**dict.fromkeys(["before", "after", "commit", "tape"], (3, 4)), "end": (7,)}


def trained(batch, again):
    """Weights that NumPy gets, where rank 0 is alone from a batch of the second epoch on.

    Args:
        again: whether the rest of that epoch is trained on the first samples, as in fit().
    """
    samples = []
    for rank in range(2):
        random = np.random.RandomState(rank)
        samples.append((np.c_[random.randn(32, 3), np.ones(32)], random.randn(32, 2)))
    weights, momentum = np.zeros((2, 4, 2))
    for number in range(24):
        alone = number >= 8 + batch
        first = number % 8 - (batch if again and alone and number < 16 else 0)
        gradients = []
        for x, y in samples[: 1 if alone else 2]:
            x, y = (each[4 * first : 4 * first + 4] for each in (x, y))
            gradients.append(x.T @ (x @ weights - y) / y.size * 2)
        momentum = 0.9 * momentum - 0.01 * np.mean(gradients, axis=0)
        weights = weights + momentum
    return weights


@pytest.mark.parametrize("moment", BATCHES)
def test_no_batch_is_lost_or_trained_twice(built_tensorflow, tmp_path, moment):
    with elastic.job(built_tensorflow.target, tmp_path, moment, program=PROGRAM) as job:
        begun = job.wait_for(rf"rank \d of 2 at {PLACE}", 2)
        assert {each["step"] for each in begun} == {"0"}
        (alone,) = job.wait_for(rf"rank 0 of 1 at {PLACE}")
        batch = int(alone["batch"])
        assert alone["epoch"] == "1" and batch in BATCHES[moment], job.output
        assert int(alone["step"]) == 8 + batch, job.output
        (ended,) = job.wait_for(rf"rank 0 ended at {PLACE}")
        assert (ended["epoch"], ended["batch"], ended["step"]) == ("3", "0", "24"), job.output
        (found,) = job.wait_for(r"with (?P<weights>\[.*\])")
        kernel, bias = json.loads(found["weights"])
        wanted = trained(batch, again=moment != "tape")
        np.testing.assert_allclose([*kernel, bias], wanted, atol=1e-5)
        assert job.wait() == 0, job.output
