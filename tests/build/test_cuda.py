"""cuda.patch: the flags for nvcc."""

import os

import pytest

from tests import compiling, needs
from tests.checkout import run, script

pytestmark = needs.programs("cmake", "c++")

#: The part that build_utils.py reads of the answer to what it asks nvcc.
NVCC = """\
cat <<'END'
--gpu-architecture <arch>
        Allowed values for this option:  'all','compute_90','compute_90a','sm_80','sm_90','sm_90a'
--gpu-code <code>
END
"""
PROJECT = """\
cmake_minimum_required(VERSION 3.13)
project(horovod CXX)
set(PY_EXE "${PYTHON_EXECUTABLE}")
set(CMAKE_CUDA_COMPILER_VERSION 13.0)
macro(add_library)
    message(STATUS "FLAGS ${HVD_NVCC_COMPILE_FLAGS} STANDARD ${CMAKE_CUDA_STANDARD}")
    return()
endmacro()
add_subdirectory(horovod/common/ops/cuda)
"""


@pytest.fixture
def configure(horovod_tree, tmp_path):
    """A function that configures the kernels of a version for a list of capabilities."""
    script(tmp_path / "nvcc", NVCC)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    def flags(version: str, capabilities: str, *options: str) -> str:
        tree = horovod_tree(version, "+cuda frameworks=pytorch")
        (tree / "CMakeLists.txt").write_text(PROJECT)
        environment = {**os.environ, "PATH": path, "HOROVOD_BUILD_CUDA_CC_LIST": capabilities}
        command = compiling.cmake(tree, tree / "build", *options)
        return " ".join(run(command, None, env=environment).split())

    return flags


@pytest.mark.parametrize("version", ["0.25.0", "0.28.1"])
def test_capabilities_may_have_a_letter(configure, version):
    output = configure(version, "100f,80,90a")
    assert (
        "FLAGS -O3 -Xcompiler -fPIC -gencode arch=compute_80,code=sm_80 "
        "-gencode arch=compute_90a,code=sm_90a "
        '-gencode arch=compute_100f,code=\\"sm_100f,compute_100f\\" STANDARD 17' in output
    ), output


@pytest.mark.parametrize("version", ["0.25.0", "0.28.1"])
def test_what_is_no_capability_is_an_error(configure, version):
    output = configure(version, "80;90")
    assert "No flags for nvcc with HOROVOD_BUILD_CUDA_CC_LIST='80;90'" in output
    assert "FLAGS" not in output


def test_a_standard_that_was_asked_for_stays(configure):
    """CMakeLists.txt does on ppc64le; nvcc refuses two."""
    assert "STANDARD 11" in configure("0.28.1", "80", "-DCMAKE_CUDA_FLAGS=-std=c++11")
