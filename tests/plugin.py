"""Configure one plugin of Horovod alone, with a framework that is not really there."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from typing import List

from tests.conftest import unmet

#: What the plugin's CMakeLists.txt needs of the one above it.
ABOVE = """\
cmake_minimum_required(VERSION 3.13)
project(horovod CXX)
set(CMAKE_MODULE_PATH "${PROJECT_SOURCE_DIR}/cmake/Modules")
set(PY_EXE "${PYTHON_EXECUTABLE}")
include(cmake/Utilities.cmake)
create_metadata()
set(EIGEN_INCLUDE_PATH "${PROJECT_SOURCE_DIR}/third_party/eigen")
set(FLATBUFFERS_INCLUDE_PATH "${PROJECT_SOURCE_DIR}/third_party/flatbuffers/include")
foreach(BOOST assert config core detail iterator lockfree mpl parameter predef preprocessor
        static_assert type_traits utility)
    include_directories("third_party/boost/${BOOST}/include")
endforeach()
add_definitions(-DHAVE_GLOO=1)
include_directories(third_party/HTTPRequest/include third_party/lbfgs/include third_party/gloo)
set(SOURCES "${PROJECT_SOURCE_DIR}/horovod/common/message.cc")
add_subdirectory(horovod/tensorflow)
"""

#: A TensorFlow that knows no more of itself than CMake asks for.
TENSORFLOW = """\
__version__ = {version!r}
class sysconfig:
    get_include = lambda: {include!r}
    get_link_flags = lambda: ["-L/nowhere", "-l:libtensorflow_framework.so.2"]
    get_compile_flags = lambda: ["-D_GLIBCXX_USE_CXX11_ABI=1"]
"""


@dataclasses.dataclass(frozen=True)
class Configured:
    """What CMake said, and how it would compile each source, by file name."""

    output: str
    commands: dict

    def compile(self, source: str) -> subprocess.CompletedProcess:
        """Let the compiler check one source as it would be compiled."""
        entry = self.commands[source]
        command = [*shlex.split(entry["command"]), "-fsyntax-only", "-w"]
        return subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)


def need(request, tier: str, *programs: str) -> None:
    """Skip, or fail where ``tier`` is required, unless all ``programs`` are on PATH."""
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        unmet(request.config, tier, f"{missing[0]} is not on PATH")


def tensorflow(
    tree: pathlib.Path, version: str, include: pathlib.Path, *options: str
) -> Configured:
    """Configure the TensorFlow plugin in ``tree`` for a TensorFlow with these headers.

    Raises:
        AssertionError: CMake failed.
    """
    (tree / "CMakeLists.txt").write_text(ABOVE)
    module = tree / "framework" / "tensorflow.py"
    module.parent.mkdir()
    module.write_text(TENSORFLOW.format(version=version, include=str(include)))
    environment = {**os.environ, "PYTHONPATH": str(module.parent)}
    done = run_cmake(tree, environment, *options)
    assert done.returncode == 0, done.stdout
    entries = json.loads((tree / "build" / "compile_commands.json").read_text())
    commands = {pathlib.Path(entry["file"]).name: entry for entry in entries}
    return Configured(done.stdout, commands)


def run_cmake(tree: pathlib.Path, environment: dict, *options: str) -> subprocess.CompletedProcess:
    """Configure ``tree`` in its directory ``build``."""
    command: List[str] = ["cmake", "-S", str(tree), "-B", str(tree / "build")]
    command += ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", f"-DPYTHON_EXECUTABLE={sys.executable}"]
    return subprocess.run(
        [*command, *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
