"""ddl-*.patch: IBM DDL is found and compiled for, as far as stubs of it and of CUDA can tell."""

import os
import pathlib

import pytest

from tests import compiling, needs
from tests.checkout import run

pytestmark = needs.programs("cmake", "c++")

VARIANTS = "+mpi+cuda+ddl frameworks=pytorch"
STUBS = pathlib.Path(__file__).parent / "stubs"
#: The part of CMakeLists.txt for DDL, and what it needs of the rest.
PROJECT = """\
cmake_minimum_required(VERSION 3.13)
project(horovod CXX)
set(HOROVOD_GPU_ALLREDUCE D)
{block}
get_directory_property(INCLUDES INCLUDE_DIRECTORIES)
message(STATUS "FOUND ${{INCLUDES}} ${{LINKER_LIBS}}")
"""


@pytest.mark.parametrize("version", ["0.20.0", "0.23.0", "0.24.0", "0.25.0", "0.26.0", "0.28.1"])
def test_the_operations_compile(horovod_tree, version):
    options = [f"-DHAVE_{name}=1" for name in ("CUDA", "GPU", "DDL", "GLOO")]
    options += [f"-I{STUBS / 'cuda'}", f"-I{STUBS / 'ddl' / 'include'}", "-std=c++14"]
    source = "horovod/common/ops/ddl_operations.cc"
    assert compiling.errors(horovod_tree(version, VARIANTS), [source], *options) == {}


def configure(tree: pathlib.Path, home: pathlib.Path, status: int = 0) -> str:
    """CMake's output for the part for DDL."""
    text = (tree / "CMakeLists.txt").read_text()
    block = text[text.index("# DDL\n") : text.index("# oneCCL\n")]
    (tree / "CMakeLists.txt").write_text(PROJECT.format(block=block))
    environment = {**os.environ, "HOROVOD_DDL_HOME": str(home)}
    return run(compiling.cmake(tree, tree / "build"), status, env=environment)


@pytest.mark.parametrize("version", ["0.20.0", "0.23.0", "0.24.0", "0.28.1"])
def test_the_library_is_found_by_its_home(horovod_tree, tmp_path, version):
    # what IBM installs, of no use but to be found
    for name in ("include/ddl.hpp", "lib/libddl.so", "lib/libddl_pack.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    libraries = f"{tmp_path}/lib/libddl.so;{tmp_path}/lib/libddl_pack.so"
    assert f"FOUND {tmp_path}/include {libraries}" in configure(
        horovod_tree(version, VARIANTS), tmp_path
    )


@pytest.mark.parametrize("version", ["0.20.0", "0.28.1"])
def test_a_library_that_is_not_there_is_an_error(horovod_tree, tmp_path, version):
    output = configure(horovod_tree(version, VARIANTS), tmp_path / "nowhere", status=1)
    assert "IBM DDL was not found: set HOROVOD_DDL_HOME" in " ".join(output.split()), output
