"""The C++ standard of the PyTorch plugin and of the Gloo in it, as CMake configures them."""

import shutil

import pytest

from hvd.model import specs
from tests.build import compiling
from tests.conftest import unmet

PLUGIN = "horovod/torch/mpi_ops_v2.cc"
STORE = "gloo/rendezvous/store.cc"
#: PyTorch, whether it has the new ABI, and the standard.
PYTORCHS = (
    ("2.0.1", True, "14"),
    ("2.1.0+cpu", False, "17"),
    ("2.13.0+cpu", True, "17"),
    ("2.14.0a0+git1234567", True, "20"),
)


@pytest.mark.parametrize(
    ("version", "pytorchs"), [("0.24.0", PYTORCHS[2:3]), ("0.28.1", PYTORCHS)]
)
def test_the_plugin_and_its_gloo_are_of_the_standard_of_pytorch(
    request, py_horovod, horovod_tree, version, pytorchs
):
    """cxx-standard.patch"""
    for program in ("c++", "cmake", "make"):
        if not shutil.which(program):
            unmet(request.config, "build", f"{program} is not on PATH")
    spec = specs.parse(f"py-horovod@{version} +gloo frameworks=pytorch ^py-torch@2.13")
    tree = horovod_tree(version, *py_horovod.patches(spec))
    wrong = {}
    for pytorch, new_abi, standard in pytorchs:
        commands = compiling.configure(tree, pytorch, new_abi)
        gloo = "third_party/gloo" if new_abi else "third_party/compatible_gloo"
        found = [compiling.standard(commands[name]) for name in (PLUGIN, f"{gloo}/{STORE}")]
        if found != [f"-std=c++{standard}"] * 2:
            wrong[pytorch] = found
    assert not wrong
