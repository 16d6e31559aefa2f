"""An elastic job with Keras goes on at the batch, when a worker is lost in an epoch."""

import pathlib

import pytest

from tests.build import elastic

pytestmark = pytest.mark.xdist_group("built")

PROGRAM = pathlib.Path(__file__).with_name("elastic_keras.py")
PLACE = r"epoch (?P<epoch>\d+), batch (?P<batch>\d+), step (?P<step>\d+)"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_batch_is_lost_or_trained_twice(built_tensorflow, tmp_path, moment):
    with elastic.job(built_tensorflow.target, tmp_path, moment, program=PROGRAM) as job:
        begun = job.wait_for(rf"rank \d of 2 at {PLACE}", 2)
        assert {each["step"] for each in begun} == {"0"}
        (alone,) = job.wait_for(rf"rank 0 of 1 at {PLACE}")
        # of the batch in which the worker was lost, the other one may have all or nothing
        assert alone["epoch"] == "1" and alone["batch"] in ("3", "4"), job.output
        assert int(alone["step"]) == 8 + int(alone["batch"]), job.output
        (ended,) = job.wait_for(rf"rank 0 ended at {PLACE}")
        assert (ended["epoch"], ended["batch"], ended["step"]) == ("3", "0", "24"), job.output
        assert job.wait() == 0, job.output
