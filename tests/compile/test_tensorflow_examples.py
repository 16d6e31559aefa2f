"""examples/tensorflow2 and examples/keras on real builds: too long for the default run."""

import pytest

from hvd.smoke.launch import Target
from tests import real_builds
from tests.build import examples
from tests.checkout import copy_checkout

SPEC = "py-horovod@0.28.1 +mpi+gloo~cuda~rocm frameworks:={frameworks}"


@pytest.fixture(scope="module", params=["tensorflow,keras", "tensorflow"])
def target(request, tmp_path_factory) -> Target:
    """Horovod for the pinned TensorFlow of `keras` (Keras 2), and for that of `tensorflow` (3)."""
    checkout = copy_checkout(tmp_path_factory.mktemp("examples") / "hvd")
    spec = SPEC.format(frameworks=request.param)
    checkout.hvd("build", "local-hvd", "--engine=pip", f"--spec={spec}")
    (record,) = (checkout.state / "built").glob("*-pip.json")
    return real_builds.target(record)


@pytest.mark.parametrize("name", ["tensorflow2", "keras"])
def test_example(target, tmp_path, name):
    example = examples.Example(name, target, tmp_path)
    examples.check(example, "mpirun", "horovodrun --gloo")
