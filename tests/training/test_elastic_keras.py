"""An elastic job with Keras goes on at the batch, when a worker is lost in an epoch."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from tests.build import elastic
from tests.training import test_keras_2

PROGRAM = pathlib.Path(__file__).with_name("elastic_keras.py")
PLACE = r"epoch (?P<epoch>\d+), batch (?P<batch>\d+), step (?P<step>\d+)"
#: Of the batch in which the worker was lost, the other one may have all or nothing.
BATCHES = {**dict.fromkeys(["before", "after", "commit", "tape"], (3, 4)), "end": (7,)}


def batches(alone, moment, keras):
    """The batches of samples that 24 steps train; from one of them on, rank 0 is alone.

    fit() begins with the first samples again, and in Keras 2 does not do so at the next epoch.
    """
    rest = 8 - alone % 8
    later = [*range(rest), *range(24 - alone - rest)] if keras == 3 else range(24 - alone)
    later = range(alone, 24) if moment == "tape" else later
    return [number % 8 for number in (*range(alone), *later)]


def trained(alone, order):
    """Weights that NumPy gets with `batches`."""
    samples = []
    for rank in range(2):
        random = np.random.RandomState(rank)
        samples.append((np.c_[random.randn(32, 3), np.ones(32)], random.randn(32, 2)))
    weights, momentum = np.zeros((2, 4, 2))
    for number, batch in enumerate(order):
        gradients = []
        for x, y in samples[: 1 if number >= alone else 2]:
            x, y = (each[4 * batch : 4 * batch + 4] for each in (x, y))
            gradients.append(x.T @ (x @ weights - y) / y.size * 2)
        momentum = 0.9 * momentum - 0.01 * np.mean(gradients, axis=0)
        weights = weights + momentum
    return weights


def job(built, directory, moment, keras):
    target = built.target
    if keras == 2:
        environment = {**target.environment, **test_keras_2.variables(built)}
        target = dataclasses.replace(target, environment=environment)
    return elastic.job(target, directory, moment, keras, program=PROGRAM)


@pytest.mark.parametrize(
    "moment, keras", [*((each, 3) for each in BATCHES), ("after", 2), ("tape", 2)]
)
def test_no_batch_is_lost_or_trained_twice(built_tensorflow, tmp_path, moment, keras):
    with job(built_tensorflow, tmp_path, moment, keras) as trains:
        begun = trains.wait_for(rf"rank \d of 2 at {PLACE}", 2)
        assert {each["step"] for each in begun} == {"0"}
        (alone,) = trains.wait_for(rf"rank 0 of 1 at {PLACE}")
        batch = int(alone["batch"])
        assert alone["epoch"] == "1" and batch in BATCHES[moment], trains.output
        assert int(alone["step"]) == 8 + batch, trains.output
        ends_with(trains, trained(8 + batch, batches(8 + batch, moment, keras)))


@pytest.mark.parametrize("moment, keras", [("init", 3), ("sync", 3), ("sync", 2)])
def test_a_worker_is_lost_before_the_first_batch(built_tensorflow, tmp_path, moment, keras):
    with job(built_tensorflow, tmp_path, moment, keras) as trains:
        (alone,) = trains.wait_for(rf"rank 0 of 1 at {PLACE}")
        assert (alone["epoch"], alone["batch"], alone["step"]) == ("0", "0", "0"), trains.output
        ends_with(trains, trained(0, batches(0, moment, keras)))


def ends_with(trains, wanted):
    """Wait until the worker that is left has trained all batches, and has those weights."""
    (ended,) = trains.wait_for(rf"rank 0 ended at {PLACE}")
    assert (ended["epoch"], ended["batch"], ended["step"]) == ("3", "0", "24"), trains.output
    (found,) = trains.wait_for(r"with (?P<weights>\[.*\])")
    kernel, bias = json.loads(found["weights"])
    np.testing.assert_allclose([*kernel, bias], wanted, atol=1e-5)
    assert trains.wait() == 0, trains.output
