"""Compile single files of a Horovod tree, as its build would, but to no output."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import Dict, Iterable, List, Set

from hvd.model import recipe, specs

#: Below a tree; boost's parts come in addition.
INCLUDES = (
    ".",
    "third_party/eigen",
    "third_party/flatbuffers/include",
    "third_party/gloo",
    "third_party/HTTPRequest/include",
    "third_party/lbfgs/include",
)
#: What a name takes, and the headers that the standard has it in.
NAMES = {
    r"\bstd::(logic|runtime)_error\b|\bstd::invalid_argument\b": {"stdexcept"},
    r"\bstd::string\b": {"string"},
    r"\bu?int(8|16|32|64)_t\b": {"cstdint", "stdint.h"},
}


def compiler() -> str:
    """The machine's C++ compiler; empty if there is none."""
    return shutil.which("c++") or ""


def errors(tree: pathlib.Path, sources: Iterable[str], *options: str) -> Dict[str, str]:
    """What the compiler has against each of ``sources``, the first error alone.

    Args:
        tree: an unpacked Horovod.
        sources: files below ``tree``.
        options: of the compiler: the language standard, definitions, more directories.
    """
    directories = [tree / name for name in INCLUDES] + sorted(
        tree.glob("third_party/boost/*/include")
    )
    command = [compiler(), "-fsyntax-only", "-w", "-pthread", "-DEIGEN_MPL2_ONLY=1", *options]
    command += [f"-I{directory}" for directory in directories]
    found = {}
    for source in sources:
        done = subprocess.run([*command, tree / source], capture_output=True, text=True)
        if done.returncode != 0:
            found[source] = next(line for line in done.stderr.splitlines() if "error" in line)
    return found


def preprocessed(tree: pathlib.Path, source: str, *options: str) -> str:
    """What the preprocessor makes of ``source`` alone, without what it includes."""
    lines = (tree / source).read_text().splitlines()
    text = "\n".join(line for line in lines if not re.match(r"\s*#\s*include\b", line))
    command = [compiler(), *options, "-E", "-P", "-x", "c++", "-"]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


def configure_gloo(tree: pathlib.Path) -> None:
    """Write Gloo's config.h as CMake would for its TCP transport and nothing else."""
    template = tree / "third_party/gloo/gloo/config.h.in"
    text = re.sub(r"@\w+@", "0", template.read_text())
    text = re.sub(r"#cmakedefine01 (\w+TRANSPORT_TCP)\b", r"#define \1 1", text)
    text = re.sub(r"#cmakedefine01 (\w+)", r"#define \1 0", text)
    template.with_name("config.h").write_text(text)


def missing_headers(path: pathlib.Path) -> Set[str]:
    """Names that ``path`` uses, where no header of the standard that has them is included.

    Headers count that ``path`` or a header of Horovod's own in it includes, whatever else
    the headers of a compiler's library may include.
    """
    text = path.read_text()
    included = _standard_headers(path, set())
    return {
        found[0]
        for name, headers in NAMES.items()
        for found in [re.search(name, text)]
        if found and not headers & included
    }


def _standard_headers(path: pathlib.Path, seen: Set[pathlib.Path]) -> Set[str]:
    seen.add(path)
    text = path.read_text()
    found = set(re.findall(r"^\s*#\s*include\s+<([^>]+)>", text, re.MULTILINE))
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
        other = (path.parent / name).resolve()
        if other.is_file() and other not in seen:
            found |= _standard_headers(other, seen)
    return found


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


def configure(
    tree: pathlib.Path,
    pytorch: str,
    new_abi: bool = True,
    includes: Iterable[pathlib.Path] = (),
) -> Dict[str, List[str]]:
    """Let CMake configure Horovod with Gloo for a PyTorch that is nothing but a version.

    Args:
        tree: an unpacked Horovod.
        pytorch: the version.
        new_abi: the C++ ABI that it says it was built with.
        includes: its directories of headers.

    Returns:
        The command that compiles each source, by the source's name relative to ``tree``.
    """
    build = _directory(tree, pytorch, new_abi)
    stub = build / "python" / "torch"
    (stub / "utils").mkdir(parents=True)
    (stub / "lib").mkdir()
    (stub / "lib" / "libtorch_cpu.so").touch()
    (stub / "__init__.py").write_text(_PYTORCH.format(version=pytorch, new_abi=new_abi))
    (stub / "utils" / "__init__.py").touch()
    (stub / "utils" / "cpp_extension.py").write_text(
        _CPP_EXTENSION.format(
            includes=[str(include) for include in includes], libraries=str(stub / "lib")
        )
    )
    horovod = recipe.load("py-horovod")
    # the sdist's directory is called horovod-<version>
    version = tree.name.rpartition("-")[2]
    asked = specs.parse(f"py-horovod@{version} ~mpi+gloo frameworks=pytorch")
    changes = horovod.build_environment(
        horovod.complete(asked), {"cmake": "cmake"}, "-mtune=generic", jobs=1
    )
    changes["PYTHONPATH"] = str(stub.parent)
    environment = {name: value for name, value in {**os.environ, **changes}.items() if value}
    command = ["cmake", f"-S{tree}", f"-B{build}", f"-DPYTHON_EXECUTABLE={sys.executable}"]
    command += ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DCMAKE_BUILD_TYPE=Release"]
    command += [f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={build / 'lib'}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    listed = json.loads((build / "compile_commands.json").read_text())
    return {
        os.path.relpath(entry["file"], tree): shlex.split(entry["command"]) for entry in listed
    }


def linked(tree: pathlib.Path, pytorch: str, new_abi: bool = True) -> List[str]:
    """The names of the libraries that the plugin is linked with, once it is configured."""
    build = _directory(tree, pytorch, new_abi)
    line = (build / "horovod/torch/CMakeFiles/pytorch.dir/link.txt").read_text()
    # CMake names a shared library without a soname by -l
    found = [re.search(r"^-l(\w+)$|/lib(\w+)\.(?:a|so)$", word) for word in shlex.split(line)]
    return [match[1] or match[2] for match in found if match]


def _directory(tree: pathlib.Path, pytorch: str, new_abi: bool) -> pathlib.Path:
    return tree / f"build-{pytorch}-{new_abi}"


def standard(command: List[str]) -> str:
    """The C++ standard that a compiler goes by: the last one that it is given."""
    return [word for word in command if word.startswith("-std=")][-1]
