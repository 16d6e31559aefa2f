"""examples/pytorch, for real; elastic: test_elastic; TensorFlow and Keras: tests/compile."""

import pytest

from hvd.core import paths
from tests.build import examples


@pytest.mark.xdist_group("built")
def test_pytorch(built_horovod, tmp_path):
    """Started by mpirun with processes that load data, and resumed over Gloo without them."""
    example = examples.Example("pytorch", built_horovod.target, tmp_path)
    examples.check(example, "mpirun", "horovodrun --gloo", "--workers", 0)


def test_readme_names_every_example():
    directory = paths.ROOT / "examples"
    text = (directory / "README.md").read_text()
    scripts = [path.relative_to(directory).as_posix() for path in directory.glob("*/train.py")]
    assert len(scripts) == 4
    assert all(f"({script})" in text for script in scripts)


def test_every_example_has_the_five_steps():
    """Numbered comments, which the README explains."""
    for script in (paths.ROOT / "examples").glob("*/train.py"):
        text = script.read_text()
        assert [n for n in range(1, 6) if f"# {n}. " not in text] == [], script
