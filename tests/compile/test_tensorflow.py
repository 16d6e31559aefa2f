"""tensorflow.patch: the plugin with each TensorFlow, as CMake would compile it."""

import os
import pathlib
import shutil

import pytest

from tests import compiling, needs
from tests.checkout import run

pytestmark = needs.programs("cmake", "c++")

MPI_OPS, XLA_OPS = "horovod/tensorflow/mpi_ops.cc", "horovod/tensorflow/xla_mpi_ops.cc"
#: A TensorFlow, and whether its headers are all that XLA operations need.
TENSORFLOWS = {"2.18.1": True, "2.19.1": False, "2.20.0": False, "2.21.0": False}
#: The two Horovods of the patch, each with every TensorFlow but the last with fewer.
CASES = [("0.28.1", version) for version in TENSORFLOWS] + [("0.28.0", "2.21.0")]


@pytest.fixture
def cuda_headers() -> pathlib.Path:
    """The directory of ``cuda_runtime.h``."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    if shutil.which("nvcc"):
        homes.append(pathlib.Path(shutil.which("nvcc")).resolve().parents[1])
    for home in filter(None, homes):
        if pathlib.Path(home, "include", "cuda_runtime.h").is_file():
            return pathlib.Path(home, "include")
    return pytest.skip("no cuda_runtime.h; set CUDA_HOME")


@pytest.fixture
def configured(horovod_tree, framework_headers):
    """A function that configures the TensorFlow plugin, for CPUs or as CUDA builds do."""

    def configure(horovod: str, tensorflow: str, *options: str) -> compiling.Configured:
        tree = horovod_tree(horovod, "frameworks=tensorflow")
        include = framework_headers("tensorflow-cpu", tensorflow)
        return compiling.tensorflow(tree, tensorflow, include, *options)

    return configure


def for_gpus(cuda: pathlib.Path) -> list:
    return ["-DHAVE_CUDA=TRUE", f"-DCMAKE_CXX_FLAGS=-DHAVE_CUDA=1 -DHAVE_GPU=1 -isystem {cuda}"]


@pytest.mark.parametrize(("horovod", "tensorflow"), CASES)
def test_the_plugin_for_cpus_compiles(configured, horovod, tensorflow):
    plan = configured(horovod, tensorflow)
    for source in (MPI_OPS, XLA_OPS, "horovod/common/message.cc"):
        assert not plan.errors(source), source


@pytest.mark.parametrize(("horovod", "tensorflow"), CASES)
def test_xla_operations_are_there_where_they_compile(
    configured, cuda_headers, horovod, tensorflow
):
    plan = configured(horovod, tensorflow, *for_gpus(cuda_headers))
    assert ("XLA operations: left out" in plan.output) != TENSORFLOWS[tensorflow]
    assert ("-DHAVE_XLA_OPS=1" in plan.commands[XLA_OPS]) == TENSORFLOWS[tensorflow]
    assert not plan.errors(XLA_OPS)


def test_the_plugin_for_gpus_needs_nothing_that_tensorflow_does_not_export(
    configured, cuda_headers, tmp_path
):
    """TensorFlow 2.21 does not export AsGpuStreamValue."""
    plan = configured("0.28.1", "2.21.0", *for_gpus(cuda_headers))
    run([*plan.commands[MPI_OPS], "-w", "-O0", "-o", tmp_path / "object"], cwd=plan.build)
    symbols = run(["nm", "--undefined-only", tmp_path / "object"])
    assert "tensorflow" in symbols
    assert "AsGpuStreamValue" not in symbols
