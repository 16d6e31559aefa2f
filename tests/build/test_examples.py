"""examples/pytorch, for real; elastic: test_elastic; TensorFlow and Keras: tests/compile."""

import pytest

from hvd.core import paths
from hvd.launch.methods import TORCH_RANK
from tests.build import examples
from tests.checkout import run


@pytest.mark.xdist_group("built")
def test_pytorch(built_horovod, tmp_path):
    """Started by mpirun with processes that load data, and resumed over Gloo without them."""
    example = examples.Example("pytorch", built_horovod.target, tmp_path)
    examples.check(example, "mpirun", "horovodrun --gloo", "--workers", 0)


#: Compares the weights of two checkpoints.
SAME = """
import sys, torch
one, other = (torch.load(file)["model"] for file in sys.argv[1:])
torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
"""


@pytest.mark.xdist_group("built")
@pytest.mark.parametrize("launcher", ["mpirun", "horovodrun --gloo"])
def test_ddp_has_the_gradients_of_horovod(built_horovod, tmp_path, launcher):
    """By the same line; either resumes from a checkpoint of the other."""
    target, before = built_horovod.target, [str(TORCH_RANK)]
    horovod = examples.Example("pytorch", target, tmp_path, "train.py", before)
    ddp = examples.Example("pytorch", target, tmp_path, "train_ddp.py", before, examples.ABORT)
    options = ["--samples", 1024, "--workers", 0]

    def train(example, checkpoint, epochs):
        more = ["--checkpoint", checkpoint, "--epochs", epochs]
        return example.run(launcher, 2, *options, *more, MASTER_ADDR="localhost").losses

    def same(*checkpoints):
        run([target.python, "-c", SAME, *checkpoints], cwd=tmp_path, env=target.environment)

    losses = train(horovod, "a", 2)
    assert train(ddp, "b", 2) == pytest.approx(losses, abs=1e-5)
    same("a", "b")
    # each goes on from what the other left
    assert train(ddp, "a", 3) == pytest.approx(train(horovod, "b", 3), abs=1e-5)
    same("a", "b")


def test_readme_names_every_example():
    directory = paths.ROOT / "examples"
    text = (directory / "README.md").read_text()
    scripts = [path.relative_to(directory).as_posix() for path in directory.glob("*/train*.py")]
    assert len(scripts) == 5
    assert all(f"({script})" in text for script in scripts)


def test_every_example_has_the_five_steps():
    """Numbered comments, which the README explains."""
    for script in (paths.ROOT / "examples").glob("*/train*.py"):
        text = script.read_text()
        assert [n for n in range(1, 6) if f"# {n}. " not in text] == [], script
