"""The examples on two ranks; the elastic ones: test_elastic; Ray and Spark: tests/services."""

import re

import pytest

from hvd.core import paths
from hvd.launch.methods import TORCH_RANK
from tests.build import examples
from tests.checkout import run

EXAMPLES = paths.ROOT / "examples"


def test_pytorch(built_horovod, tmp_path):
    """Started by mpirun with processes that load data, and resumed over Gloo without them."""
    example = examples.Example("pytorch/pytorch_mnist.py", built_horovod.target, tmp_path)
    examples.check(example, "mpirun", "horovodrun --gloo", "--workers", 0)


@pytest.mark.parametrize(
    ("script", "options"),
    [("tensorflow2_mnist", ()), ("tensorflow2_keras_mnist", ("--warmup-epochs", 0))],
)
def test_tensorflow(built_tensorflow, tmp_path, script, options):
    target = built_tensorflow.target
    example = examples.Example(f"tensorflow2/{script}.py", target, tmp_path, options)
    examples.check(example, "mpirun", "horovodrun --gloo")


@pytest.mark.parametrize(
    ("built", "script", "options"),
    [
        ("built_horovod", "pytorch/pytorch_mixed_precision.py", ()),
        ("built_tensorflow", "tensorflow2/tensorflow2_mixed_precision.py", ()),
        (
            "built_tensorflow",
            "tensorflow2/tensorflow2_keras_mixed_precision.py",
            # a warm-up depends on the number of ranks, of which there are two and one
            ("--warmup-epochs", 0),
        ),
    ],
    ids=["pytorch", "tensorflow2", "keras"],
)
def test_mixed_precision(request, tmp_path, built, script, options):
    target = request.getfixturevalue(built).target
    examples.check_accumulation(examples.Example(script, target, tmp_path, options))


def test_warm_up_of_keras(built_tensorflow, tmp_path):
    """The first epoch learns less with it, and the last one well."""
    script, target = "tensorflow2/tensorflow2_keras_mnist.py", built_tensorflow.target
    small = ["--samples", 1024, "--epochs", 3]
    example = examples.Example(script, target, tmp_path)
    losses = example.run("mpirun", 2, *small).losses
    without = example.run("mpirun", 2, *small, "--warmup-epochs", 0).losses
    assert losses[1] > without[1] + 0.05 and losses[3] < losses[1] / 2, (losses, without)


def test_benchmark_of_pytorch(built_horovod, tmp_path):
    script, target = "pytorch/pytorch_synthetic_benchmark.py", built_horovod.target
    examples.check_benchmark(examples.Example(script, target, tmp_path, ["--use-adasum"]))


@pytest.mark.parametrize(("api", "more"), [("", ["--use-adasum"]), ("keras_", [])])
def test_benchmark_of_tensorflow(built_tensorflow, tmp_path, api, more):
    script = f"tensorflow2/tensorflow2_{api}synthetic_benchmark.py"
    target = built_tensorflow.target
    options = ["--model", "MobileNet", *more]
    examples.check_benchmark(examples.Example(script, target, tmp_path, options))


#: Compares the weights of two checkpoints.
SAME = """
import sys, torch
one, other = (torch.load(file)["model"] for file in sys.argv[1:])
torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
"""


@pytest.mark.parametrize("launcher", ["mpirun", "horovodrun --gloo"])
def test_ddp_has_the_gradients_of_horovod(built_horovod, tmp_path, launcher):
    """By the same line; either resumes from a checkpoint of the other."""
    target, before = built_horovod.target, [str(TORCH_RANK)]
    common = [target, tmp_path, ["--samples", 1024, "--workers", 0], before]
    horovod = examples.Example("pytorch/pytorch_mnist.py", *common)
    ddp = examples.Example("pytorch/pytorch_mnist_ddp.py", *common, examples.ABORT)

    def train(example, checkpoint, epochs):
        more = ["--checkpoint", checkpoint, "--epochs", epochs]
        return example.run(launcher, 2, *more, MASTER_ADDR="localhost").losses

    def same(*checkpoints):
        run([target.python, "-c", SAME, *checkpoints], cwd=tmp_path, env=target.environment)

    losses = train(horovod, "a", 2)
    assert train(ddp, "b", 2) == pytest.approx(losses, abs=1e-5)
    same("a", "b")
    # each goes on from what the other left
    assert train(ddp, "a", 3) == pytest.approx(train(horovod, "b", 3), abs=1e-5)
    same("a", "b")


def test_ddp_alone(built_horovod, tmp_path):
    """Without a launcher it is one rank."""
    script, target = EXAMPLES / "pytorch" / "pytorch_mnist_ddp.py", built_horovod.target
    command = [target.python, script, "--samples", 512, "--workers", 0, "--epochs", 2]
    printed = run(command, cwd=tmp_path, env=target.environment)
    assert list(examples.epochs(printed, 1).losses) == [1, 2]


def test_readme_names_every_example():
    text = (EXAMPLES / "README.md").read_text()
    scripts = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/*.py")}
    assert set(re.findall(r"\(([^)]*\.py)\)", text)) == scripts


def test_every_training_script_has_the_five_steps():
    """Numbered comments, which the README explains; Ray's and Spark's name one that has them."""
    for script in EXAMPLES.glob("*/*_mnist*.py"):
        text = script.read_text()
        if script.parent.name not in ("ray", "spark"):
            assert [n for n in range(1, 6) if f"# {n}. " not in text] == [], script
