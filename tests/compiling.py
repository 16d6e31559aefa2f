"""Configure a Horovod tree for frameworks that are not there, and compile single files of it."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Dict, Iterable, List, Mapping, Set

from hvd.model import recipe, specs
from tests.checkout import run

#: Below a tree; Boost's parts come in addition.
INCLUDES = (
    ".",
    "third_party/eigen",
    "third_party/flatbuffers/include",
    "third_party/gloo",
    "third_party/HTTPRequest/include",
    "third_party/lbfgs/include",
)
#: Horovod's client of the rendezvous.
STORE = (
    "horovod/common/gloo/http_store.cc",
    "horovod/common/logging.cc",
    "horovod/common/common.cc",
    "third_party/gloo/gloo/rendezvous/store.cc",
)
#: What collectives of Gloo need beside its transport.
ALGORITHMS = ("algorithm", "allreduce", "allreduce_local", "context")
#: A pattern of names to the headers of the standard that declare them.
NAMES = {
    r"\bstd::(logic|runtime)_error\b|\bstd::invalid_argument\b": {"stdexcept"},
    r"\bstd::string\b": {"string"},
    r"\bu?int(8|16|32|64)_t\b": {"cstdint", "stdint.h"},
}


def includes(tree: pathlib.Path) -> List[str]:
    """The compiler's options for the directories of headers in a tree."""
    directories = [tree / name for name in INCLUDES]
    directories += sorted(tree.glob("third_party/boost/*/include"))
    return [f"-I{directory}" for directory in directories]


def program(tree: pathlib.Path, folder: pathlib.Path, text: str, *sources: object) -> pathlib.Path:
    """Compile and link a program with sources of a tree; headers in ``folder`` come first."""
    (folder / "main.cc").write_text(text)
    return _compile(tree, folder, "main", folder / "main.cc", *sources)


def library(tree: pathlib.Path, folder: pathlib.Path, *sources: object) -> pathlib.Path:
    """Compile sources of a tree into one object, for several programs."""
    return _compile(tree, folder, "library.o", "-r", *sources)


def _compile(tree: pathlib.Path, folder: pathlib.Path, made: str, *words: object) -> pathlib.Path:
    command = ["c++", "-std=c++17", "-w", f"-I{folder}", *includes(tree), *words]
    run([*command, "-o", folder / made, "-pthread"], cwd=tree)
    return folder / made


def errors(tree: pathlib.Path, sources: Iterable[str], *options: str) -> Dict[str, str]:
    """The compiler's first error in each of ``sources``, which are relative to ``tree``."""
    command = ["c++", "-fsyntax-only", "-w", "-pthread", "-DEIGEN_MPL2_ONLY=1", *options]
    command += includes(tree)
    found = {}
    for source in sources:
        done = subprocess.run([*command, tree / source], capture_output=True, text=True)
        if done.returncode != 0:
            found[source] = next(line for line in done.stderr.splitlines() if "error" in line)
    return found


def preprocessed(tree: pathlib.Path, source: str, *options: str) -> str:
    """The preprocessor's output for ``source`` alone, without what it includes."""
    lines = (tree / source).read_text().splitlines()
    text = "\n".join(line for line in lines if not re.match(r"\s*#\s*include\b", line))
    command = ["c++", *options, "-E", "-P", "-x", "c++", "-"]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


def configure_gloo(tree: pathlib.Path) -> None:
    """Write Gloo's config.h as CMake would for its TCP transport and nothing else."""
    template = tree / "third_party/gloo/gloo/config.h.in"
    text = re.sub(r"@\w+@", "0", template.read_text())
    text = re.sub(r"#cmakedefine01 (\w+TRANSPORT_TCP)\b", r"#define \1 1", text)
    text = re.sub(r"#cmakedefine01 (\w+)", r"#define \1 0", text)
    template.with_name("config.h").write_text(text)


def gloo(tree: pathlib.Path, *names: str) -> List[pathlib.Path]:
    """Configure Gloo, and return the sources of its TCP transport and of ``names``."""
    configure_gloo(tree)
    place = tree / "third_party/gloo/gloo"
    names = ("transport/*", "transport/tcp/*", "common/linux", "common/logging", "types", *names)
    return [source for name in names for source in place.glob(f"{name}.cc")]


def missing_headers(path: pathlib.Path) -> Set[str]:
    """Names that ``path`` uses without a header of the standard that declares them.

    A header counts if ``path`` includes it, or another header of Horovod that it includes;
    not if a header of the compiler's library happens to.
    """
    text = path.read_text()
    included = _standard_headers(path, set())
    found = {re.search(name, text): headers for name, headers in NAMES.items()}
    return {match[0] for match, headers in found.items() if match and not headers & included}


def _standard_headers(path: pathlib.Path, seen: Set[pathlib.Path]) -> Set[str]:
    seen.add(path)
    text = path.read_text()
    found = set(re.findall(r"^\s*#\s*include\s+<([^>]+)>", text, re.MULTILINE))
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
        other = (path.parent / name).resolve()
        if other.is_file() and other not in seen:
            found |= _standard_headers(other, seen)
    return found


@dataclasses.dataclass(frozen=True)
class Configured:
    """A tree as CMake configured it.

    Args:
        build: CMake's directory.
        output: what CMake printed.
        commands: the words that compile each source, by its path in the tree.
    """

    build: pathlib.Path
    output: str
    commands: Mapping[str, List[str]]

    def errors(self, source: str, compiler: str = "c++") -> str:
        """What a compiler has against a source, compiled as in a build but to no output."""
        command = [compiler, *self.commands[source][1:], "-fsyntax-only", "-w"]
        done = subprocess.run(command, cwd=self.build, capture_output=True, text=True)
        return done.stderr if done.returncode else ""

    def compiled(self, end: str) -> List[str]:
        """The sources whose names end so, each as often as it is compiled."""
        listed = json.loads((self.build / "compile_commands.json").read_text())
        return [each["file"] for each in listed if each["file"].endswith(end)]

    def standard(self, source: str) -> str:
        """The C++ standard for a source: the last one that the compiler is given."""
        return [word for word in self.commands[source] if word.startswith("-std=")][-1]

    def linked(self) -> List[str]:
        """The names of the libraries that the PyTorch plugin is linked with."""
        line = (self.build / "horovod/torch/CMakeFiles/pytorch.dir/link.txt").read_text()
        # CMake names a shared library without a soname by -l
        found = [re.search(r"^-l(\w+)$|/lib(\w+)\.(?:a|so)$", word) for word in shlex.split(line)]
        return [match[1] or match[2] for match in found if match]


def cmake(tree: pathlib.Path, build: pathlib.Path, *options: str) -> List[str]:
    """The command that configures ``tree`` in the directory ``build``."""
    command = ["cmake", f"-S{tree}", f"-B{build}", f"-DPYTHON_EXECUTABLE={sys.executable}"]
    return [*command, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *options]


def _configure(
    tree: pathlib.Path, build: pathlib.Path, variables: Mapping[str, str], *options: str
) -> Configured:
    environment = {name: value for name, value in {**os.environ, **variables}.items() if value}
    # where there is a CUDA, trying it takes four seconds, and nothing here is for GPUs
    options += ("-DCMAKE_CUDA_COMPILER=NOTFOUND", "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON")
    output = run(cmake(tree, build, *options), env=environment)
    listed = json.loads((build / "compile_commands.json").read_text())
    commands = {os.path.relpath(e["file"], tree): shlex.split(e["command"]) for e in listed}
    return Configured(build, output, commands)


#: A module that answers what cmake/Modules/FindPytorch.cmake asks PyTorch.
_PYTORCH = """\
import sys, types
torch = sys.modules[__name__]
__version__ = {version!r}
version = types.SimpleNamespace(cuda=None, hip=None)
def compiled_with_cxx11_abi():
    return {new_abi!r}
"""
_CPP_EXTENSION = """\
import types
CUDA_HOME = ROCM_HOME = None
def CppExtension(name, sources):
    return types.SimpleNamespace(
        include_dirs={includes!r}, library_dirs=[{libraries!r}], libraries=["torch_cpu"]
    )
"""


def pytorch(
    tree: pathlib.Path,
    version: str,
    new_abi: bool = True,
    headers: Iterable[pathlib.Path] = (),
    tensorflow: str = "",
) -> Configured:
    """Let CMake configure a Horovod with Gloo for a PyTorch that is nothing but a version.

    Args:
        tree: an unpacked Horovod.
        version: PyTorch's.
        new_abi: the C++ ABI that it says it was built with.
        headers: its directories of headers.
        tensorflow: the version of a TensorFlow beside it; empty for none.
    """
    build = tree / f"build-{version}-{new_abi}-{tensorflow}"
    stub = build / "python" / "torch"
    (stub / "utils").mkdir(parents=True)
    (stub / "lib").mkdir()
    (stub / "lib" / "libtorch_cpu.so").touch()
    (stub / "__init__.py").write_text(_PYTORCH.format(version=version, new_abi=new_abi))
    (stub / "utils" / "__init__.py").touch()
    extension = _CPP_EXTENSION.format(
        includes=[str(each) for each in headers], libraries=str(stub / "lib")
    )
    (stub / "utils" / "cpp_extension.py").write_text(extension)
    frameworks = "pytorch"
    if tensorflow:
        frameworks += ",tensorflow"
        text = _TENSORFLOW.format(version=tensorflow, include=str(stub))
        stub.with_name("tensorflow.py").write_text(text)
    horovod = recipe.load("py-horovod")
    # the sdist's directory is called horovod-<version>
    asked = f"py-horovod@{tree.name.rpartition('-')[2]} ~mpi+gloo frameworks={frameworks}"
    variables = horovod.build_environment(
        horovod.complete(specs.parse(asked)), {"cmake": "cmake"}, "-mtune=generic", jobs=1
    )
    options = ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={build / 'lib'}"]
    return _configure(tree, build, {**variables, "PYTHONPATH": str(stub.parent)}, *options)


#: What the TensorFlow plugin's CMakeLists.txt needs of the one above it.
_ABOVE = """\
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
# as hip::host has __HIP_PLATFORM_AMD__
add_library(with_macro INTERFACE)
target_compile_definitions(with_macro INTERFACE MACRO_OF_LIBRARY=1)
set(LINKER_LIBS with_macro)
add_subdirectory(horovod/tensorflow)
"""
#: A TensorFlow that knows no more of itself than CMake asks for.
_TENSORFLOW = """\
__version__ = {version!r}
class sysconfig:
    get_include = lambda: {include!r}
    get_link_flags = lambda: ["-L/nowhere", "-l:libtensorflow_framework.so.2"]
    get_compile_flags = lambda: ["-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64"]
"""


def tensorflow(
    tree: pathlib.Path, version: str, include: pathlib.Path, *options: str
) -> Configured:
    """Let CMake configure the TensorFlow plugin alone, for a TensorFlow with these headers."""
    (tree / "CMakeLists.txt").write_text(_ABOVE)
    module = tree / "framework" / "tensorflow.py"
    module.parent.mkdir()
    module.write_text(_TENSORFLOW.format(version=version, include=str(include)))
    return _configure(tree, tree / "build", {"PYTHONPATH": str(module.parent)}, *options)
