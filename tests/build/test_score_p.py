"""docs/profilers.md: a build with Score-P's compiler wrappers, with stand-ins for them."""

import os
import shutil
import sys

import pytest

from hvd.core import paths
from tests import needs
from tests.checkout import run, script

pytestmark = needs.programs("c++", "cc", "cmake", "make")

#: Instead of Horovod's: one small library in C++, and what CMake compiles to configure.
PROJECT = """\
cmake_minimum_required(VERSION 3.13)
project(small C CXX)
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("int main() { return 0; }" COMPILES)
add_library(small SHARED small.cc)
"""
FLAGS = "--mpp=mpi --thread=pthread --nocompiler"


def test_the_wrappers_are_off_for_configuring_and_on_for_building(horovod_tree, tmp_path):
    """By the commands of Horovod's own setup.py."""
    pytest.importorskip("setuptools")
    tree = horovod_tree("0.28.1", "+mpi+gloo frameworks=pytorch")
    (tree / "CMakeLists.txt").write_text(PROJECT)
    (tree / "small.cc").write_text("int small() { return 1; }\n")
    calls = tmp_path / "calls"
    for name, compiler in (("scorep-gcc", "cc"), ("scorep-g++", "c++")):
        line = f'echo "$SCOREP_WRAPPER|$SCOREP_WRAPPER_INSTRUMENTER_FLAGS|$*" >> {calls}'
        script(tmp_path / "bin" / name, line, f'exec {shutil.which(compiler)} "$@"')
    environ = {key: os.environ[key] for key in os.environ if not key.startswith("HOROVOD_")}
    environ.update(CC="scorep-gcc", CXX="scorep-g++", SCOREP_WRAPPER_INSTRUMENTER_FLAGS=FLAGS)
    environ["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environ["HOROVOD_CMAKE"] = str(paths.ROOT / "examples" / "profiling" / "scorep-cmake")
    run([sys.executable, "setup.py", "build_ext"], cwd=tree, env=environ)
    compiled = [line.split("|") for line in calls.read_text().splitlines()]
    built = [words for switch, _, words in compiled if switch == "on"]
    assert len(built) == 2 and "small.cc" in built[0] and "libsmall.so" in built[1]
    assert {flags for _, flags, _ in compiled} == {FLAGS}
    configured = [words for switch, _, words in compiled if switch == "off"]
    assert configured and not any("small.cc" in words for words in configured)
    assert len(built) + len(configured) == len(compiled)
