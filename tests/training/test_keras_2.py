"""With Keras 2, which TensorFlow has as a package of its own, loops reduce gradients too."""

import os
import pathlib

import pytest

from tests import kept
from tests.ranks import LAUNCHED, ranks_of

PROGRAM = pathlib.Path(__file__).with_name("keras_2.py")
PINNED = PROGRAM.with_name("requirements-tf-keras.txt")
#: What it prints, and how often on each rank.
RIGHT = {
    **dict.fromkeys(
        "loop eagerly fit sum train_step checkpoint copies warmup overflow".split(), 1
    ),
    "passes": 6,
    "passes of a graph": 1,
    "tape and optimizer": 1,
    "saved": 6,
    "normalized": 3,
    "momentum": 2,
    "wrapped after steps": 2,
    "skipped step": 1,
    "weights of rank 0": 2,
    "state of rank 0": 2,
    "rate of a function": 1,
    "refused": 4,
}


def variables(built):
    """The environment variables with which a build finds Keras 2."""
    keras_2 = kept.packages("tf-keras", PINNED, "--no-deps")
    path = [built.target.environment.get("PYTHONPATH", ""), str(keras_2)]
    return {"PYTHONPATH": os.pathsep.join(filter(None, path))}


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_as_one_process(built_tensorflow, tmp_path, launcher):
    program = PROGRAM.read_text().replace("sys.argv[1]", repr(str(tmp_path)))
    said = ranks_of(built_tensorflow, launcher, program, tmp_path, **variables(built_tensorflow))
    for name, times in RIGHT.items():
        assert said.count(f"{name}: True") == 2 * times, said
