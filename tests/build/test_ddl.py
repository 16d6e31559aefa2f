"""ddl-*.patch: IBM DDL is found and compiled for, as far as stubs of it and of CUDA can tell."""

import os
import pathlib
import subprocess

import pytest

from hvd.model import specs
from tests import plugin

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


@pytest.fixture
def tree(py_horovod, horovod_tree):
    """A function that gives the patched source of a version for DDL."""

    def patched(version: str) -> pathlib.Path:
        spec = specs.parse(f"py-horovod@{version} +mpi+cuda+ddl frameworks=pytorch")
        return horovod_tree(version, *py_horovod.patches(spec))

    return patched


@pytest.fixture
def ddl(tmp_path) -> pathlib.Path:
    """A directory with what IBM installs, of no use but to be found."""
    prefix = tmp_path / "ddl"
    for name in ("include/ddl.hpp", "lib/libddl.so", "lib/libddl_pack.so"):
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).touch()
    return prefix


@pytest.mark.parametrize("version", ["0.20.0", "0.23.0", "0.24.0", "0.25.0", "0.26.0", "0.28.1"])
def test_the_operations_compile(request, tree, version):
    plugin.need(request, "build", "c++")
    source = tree(version)
    third_party = ["eigen", "lbfgs/include", "flatbuffers/include", "HTTPRequest/include", "gloo"]
    third_party += [str(path) for path in source.glob("third_party/boost/*/include")]
    includes = [source / "third_party" / name for name in third_party]
    includes += [STUBS / "cuda", STUBS / "ddl" / "include"]
    command = ["c++", "-std=c++14", "-fsyntax-only", "-w", *(f"-I{path}" for path in includes)]
    command += [f"-DHAVE_{name}=1" for name in ("CUDA", "GPU", "DDL", "GLOO")]
    command += [source / "horovod" / "common" / "ops" / "ddl_operations.cc"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def configure(source: pathlib.Path, **variables: str) -> str:
    """What CMake says to the part for DDL."""
    text = (source / "CMakeLists.txt").read_text()
    block = text[text.index("# DDL\n") : text.index("# oneCCL\n")]
    (source / "CMakeLists.txt").write_text(PROJECT.format(block=block))
    return plugin.run_cmake(source, {**os.environ, **variables}).stdout


@pytest.mark.parametrize("version", ["0.20.0", "0.23.0", "0.24.0", "0.28.1"])
def test_the_library_is_found_by_its_home(request, tree, ddl, version):
    plugin.need(request, "build", "cmake", "c++")
    found = configure(tree(version), HOROVOD_DDL_HOME=str(ddl))
    libraries = f"{ddl}/lib/libddl.so;{ddl}/lib/libddl_pack.so"
    assert f"FOUND {ddl}/include {libraries}" in found, found


@pytest.mark.parametrize("version", ["0.20.0", "0.28.1"])
def test_a_library_that_is_not_there_is_an_error(request, tree, tmp_path, version):
    plugin.need(request, "build", "cmake", "c++")
    output = configure(tree(version), HOROVOD_DDL_HOME=str(tmp_path / "nowhere"))
    assert "IBM DDL was not found: set HOROVOD_DDL_HOME" in " ".join(output.split()), output
