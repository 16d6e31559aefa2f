"""Horovod's PyTorch plugin against the headers of PyTorch, commanded by Horovod's own CMake."""

import shutil
import subprocess

import pytest

from hvd.model import specs
from tests.build import compiling
from tests.conftest import unmet

#: Horovod, and PyTorch: the ends of what the recipe's patches say.
PAIRS = (
    ("0.24.0", "2.1.2"),
    ("0.24.0", "2.15.0"),
    ("0.28.1", "2.0.1"),
    ("0.28.1", "2.1.2"),
    ("0.28.1", "2.13.0"),
    ("0.28.1", "2.14.0"),
    ("0.28.1", "2.15.0"),
)


@pytest.mark.parametrize(("version", "pytorch"), PAIRS)
def test_the_plugin_compiles(
    request, py_horovod, horovod_tree, framework_headers, version, pytorch
):
    """cxx-standard.patch, integral-type.patch"""
    for program in ("c++", "cmake", "make"):
        if not shutil.which(program):
            unmet(request.config, "compile", f"{program} is not on PATH")
    include = framework_headers("torch", pytorch)
    spec = specs.parse(f"py-horovod@{version} +gloo frameworks=pytorch ^py-torch@{pytorch}")
    tree = horovod_tree(version, *py_horovod.patches(spec))
    includes = [include, include / "torch" / "csrc" / "api" / "include"]
    commands = compiling.configure(tree, pytorch, includes=includes)
    refused = {}
    for source, command in sorted(commands.items()):
        if source.startswith("horovod/torch/"):
            done = subprocess.run(
                [*command, "-fsyntax-only", "-w"], cwd=tree, capture_output=True, text=True
            )
            if done.returncode != 0:
                refused[source] = [line for line in done.stderr.splitlines() if "error" in line]
    assert len(commands) > 5
    assert not refused
