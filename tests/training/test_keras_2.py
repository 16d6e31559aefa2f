"""With Keras 2, which TensorFlow has as a package of its own, loops reduce gradients too."""

import os
import pathlib
import subprocess
import sys

import pytest

from hvd.core import paths
from tests.ranks import LAUNCHED, ranks_of

pytestmark = pytest.mark.xdist_group("built")

PROGRAM = pathlib.Path(__file__).with_name("keras_2.py")
PINNED = PROGRAM.with_name("requirements-tf-keras.txt")
RIGHT = "loop, eagerly, passes, fit, sum, train_step, saved, warmup, overflow".split(", ")


@pytest.fixture(scope="session")
def keras_2() -> pathlib.Path:
    """A directory with tf_keras."""
    place = paths.cache() / "tf-keras"
    pip = [sys.executable, "-m", "pip", "install", "--target", place, "--no-deps", "--upgrade"]
    done = subprocess.run([*pip, "--require-hashes", "-r", PINNED], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip does not install tf-keras: {done.stderr[-300:]}")
    return place


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_as_one_process(built_tensorflow, keras_2, tmp_path, launcher):
    path = [built_tensorflow.target.environment.get("PYTHONPATH", ""), str(keras_2)]
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, path)), "OMP_NUM_THREADS": "1"}
    program = PROGRAM.read_text().replace("sys.argv[1]", repr(str(tmp_path)))
    said = ranks_of(built_tensorflow, launcher, program, tmp_path, **variables)
    for name in RIGHT:
        assert said.count(f"{name}: True") == 2, said
