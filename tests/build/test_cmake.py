"""The plugins of Horovod as CMake configures them, for frameworks that are not there."""

import re

import pytest

from tests import compiling, needs

pytestmark = needs.programs("c++", "cmake", "make")

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
def test_the_plugin_and_its_gloo_are_of_the_standard_of_pytorch(horovod_tree, version, pytorchs):
    """cxx-standard.patch"""
    tree = horovod_tree(version, "+gloo frameworks=pytorch ^py-torch@2.13")
    for pytorch, new_abi, standard in pytorchs:
        plan = compiling.pytorch(tree, pytorch, new_abi)
        gloo = "third_party/gloo" if new_abi else "third_party/compatible_gloo"
        for source in (PLUGIN, f"{gloo}/{STORE}"):
            assert plan.standard(source) == f"-std=c++{standard}", (pytorch, source)


# the ends of what gloo-torch.patch is for, and the release that needs none
@pytest.mark.parametrize("version", ["0.20.0", "0.26.1", "0.27.0"])
def test_the_bundled_gloo_comes_before_that_of_pytorch(horovod_tree, version):
    """gloo-torch.patch"""
    tree = horovod_tree(version, "+gloo frameworks=pytorch ^py-torch@1.13.1")
    for gloo, new_abi in (("gloo", True), ("compatible_gloo", False)):
        libraries = compiling.pytorch(tree, "1.13.1", new_abi).linked()
        assert libraries.index(gloo) < libraries.index("torch_cpu")


@pytest.mark.parametrize("version", ["0.22.0", "0.28.1"])
def test_another_flatbuffers_on_the_machine_is_not_used(horovod_tree, tmp_path, version):
    """flatbuffers.patch"""
    other = tmp_path / "include" / "flatbuffers" / "flatbuffers.h"
    other.parent.mkdir(parents=True)
    other.write_text("#error another flatbuffers\n")
    tree = horovod_tree(version, "frameworks=tensorflow")
    options = [f"-DCMAKE_PREFIX_PATH={tmp_path}"]
    plan = compiling.tensorflow(tree, "2.4.4", tmp_path / "tensorflow", *options)
    assert not plan.errors("horovod/common/message.cc")


@pytest.mark.parametrize("version", ["0.28.0", "0.28.1"])
def test_two_plugins_share_what_is_compiled_the_same_way(horovod_tree, version):
    """common-objects.patch"""
    tree = horovod_tree(version, "+gloo frameworks=pytorch,tensorflow ^py-torch@2.13")
    for pytorch, new_abi, times in (
        ("2.13.0", True, 1),
        ("2.13.0", False, 2),
        ("2.14.0", True, 2),
    ):
        plan = compiling.pytorch(tree, pytorch, new_abi, tensorflow="2.21.0")
        # PyTorch's with the old ABI has a Gloo of its own, and so has that with another standard
        for source in ("/common/controller.cc", f"/{STORE}"):
            assert len(plan.compiled(source)) == times, (pytorch, new_abi, source)
        if times == 1:
            # how Eigen aligns is the same in all objects
            for source in (PLUGIN, "horovod/common/parameter_manager.cc"):
                assert "-DEIGEN_MAX_ALIGN_BYTES=64" in plan.commands[source]


def test_the_macro_of_a_library_is_set_for_what_two_plugins_share(horovod_tree, tmp_path):
    """common-objects.patch"""
    tree = horovod_tree("0.28.1", "+gloo frameworks=tensorflow")
    plan = compiling.tensorflow(tree, "2.15.1", tmp_path / "tensorflow")
    for source in ("horovod/common/message.cc", "horovod/tensorflow/mpi_ops.cc"):
        assert "-DMACRO_OF_LIBRARY=1" in plan.commands[source], source


@pytest.mark.parametrize("version", ["0.28.0", "0.28.1"])
def test_the_plugin_includes_little_of_pytorch(horovod_tree, version):
    """torch-headers.patch"""
    plugin = horovod_tree(version, "frameworks=pytorch") / "horovod" / "torch"
    text = "".join(path.read_text() for path in sorted(plugin.glob("*.[ch]*")))
    included = set(re.findall(r"^#include <(torch/[^>]+)>", text, re.MULTILINE))
    assert included == {"torch/csrc/utils/pybind.h", "torch/types.h"}
