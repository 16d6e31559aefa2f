"""The Gloo that the plugin for PyTorch is linked with, as CMake configures it."""

import shutil

import pytest

from hvd.model import specs
from tests.build import compiling
from tests.conftest import unmet

#: The ends of what gloo-torch.patch is for, and the release that needs none.
VERSIONS = ["0.20.0", "0.26.1", "0.27.0"]
#: PyTorch by the Gloo for its ABI.
PYTORCHS = {"gloo": ("1.13.1", True), "compatible_gloo": ("1.13.1", False)}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bundled_gloo_comes_before_that_of_pytorch(request, py_horovod, horovod_tree, version):
    """gloo-torch.patch"""
    for program in ("c++", "cmake", "make"):
        if not shutil.which(program):
            unmet(request.config, "build", f"{program} is not on PATH")
    spec = specs.parse(f"py-horovod@{version} +gloo frameworks=pytorch ^py-torch@1.13.1")
    tree = horovod_tree(version, *py_horovod.patches(spec))
    for gloo, pytorch in PYTORCHS.items():
        compiling.configure(tree, *pytorch)
        libraries = compiling.linked(tree, *pytorch)
        assert libraries.index(gloo) < libraries.index("torch_cpu")
