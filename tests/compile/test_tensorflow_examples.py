"""The examples of TensorFlow 2 with Keras 2, on a build of their own; Keras 3: tests/build."""

import pytest

from hvd.smoke.launch import Target
from tests import real_builds
from tests.build import examples
from tests.checkout import copy_checkout

SPEC = "py-horovod@0.28.1 +mpi+gloo~cuda~rocm frameworks:=tensorflow,keras"


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Target:
    """Horovod for the pinned TensorFlow of `keras`."""
    checkout = copy_checkout(tmp_path_factory.mktemp("examples") / "hvd")
    checkout.hvd("build", "local-hvd", "--engine=pip", f"--spec={SPEC}")
    (record,) = (checkout.state / "built").glob("*-pip.json")
    return real_builds.target(record)


@pytest.mark.parametrize(
    ("script", "options"),
    [("tensorflow2_mnist", ()), ("tensorflow2_keras_mnist", ("--warmup-epochs", 0))],
)
def test_example(target, tmp_path, script, options):
    example = examples.Example(f"tensorflow2/{script}.py", target, tmp_path, options)
    examples.check(example, "mpirun", "horovodrun --gloo")
