"""Sources that newer compilers and kernel headers refuse, and the patches that make them pass."""

import pytest

from tests import compiling, needs

pytestmark = needs.programs("c++")

LINUX = "third_party/gloo/gloo/common/linux.cc"
DEVICE = "third_party/gloo/gloo/transport/tcp/device.cc"
READY_EVENT = "horovod/torch/ready_event.cc"
CUDA_UTIL = "horovod/torch/cuda_util.cc"
#: What GCC 13 or 14 refuses in one version or another.
REFUSED = ("message.cc", "group_table.cc", "common.cc", "operations.cc", "response_cache.cc")


@pytest.fixture
def patched(shared_tree):
    """A function that gives the tree of a version with the recipe's patches."""
    return lambda version: shared_tree(version, "+mpi+gloo frameworks=pytorch ^py-torch@2.0")


def present(tree, *names):
    """Those of the common sources ``names`` that a version has."""
    sources = [f"horovod/common/{name}" for name in names]
    return [source for source in sources if (tree / source).is_file()]


@pytest.mark.parametrize("version", ["0.18.2", "0.19.5", "0.20.0", "0.28.0", "0.28.1"])
def test_gloo_compiles(patched, version):
    """gloo.patch"""
    tree = patched(version)
    compiling.configure_gloo(tree)
    assert compiling.errors(tree, [LINUX, DEVICE], "-std=c++11") == {}


@pytest.mark.parametrize("version", ["0.18.2", "0.28.0"])
def test_gloo_leaves_the_kernel_the_room_that_it_had(patched, version):
    """gloo.patch: the reply of ETHTOOL_GLINKSETTINGS is the header and three masks behind it."""
    tree = patched(version)
    text = (tree / LINUX).read_text()
    begin = text.index("constexpr auto link_mode_data_nwords")
    body = text[begin : text.index("} ecmd;", begin)]
    (tree / "room.cc").write_text(
        f"#include <linux/ethtool.h>\nint main() {{\n{body}}} ecmd;\n"
        'static_assert(sizeof(ecmd) == sizeof(ethtool_link_settings) + 3 * 127 * 4, "room");\n'
        "return (char*)&ecmd.req - (char*)&ecmd;\n}\n"
    )
    assert compiling.errors(tree, ["room.cc"], "-std=c++11") == {}


@pytest.mark.parametrize("version", ["0.18.2", "0.20.3"])
def test_the_pytorch_plugin_has_its_exceptions(patched, version):
    """headers.patch; compiled without CUDA, these two need nothing of PyTorch."""
    assert compiling.errors(patched(version), [READY_EVENT, CUDA_UTIL], "-std=c++14") == {}


@pytest.mark.parametrize("version", ["0.18.2", "0.20.3", "0.21.0", "0.23.0", "0.28.1"])
def test_no_source_counts_on_the_headers_of_an_older_gcc(patched, version):
    """headers.patch, headers-0.21.patch: whichever compiler this machine has."""
    tree = patched(version)
    missing = {name: compiling.missing_headers(tree / name) for name in present(tree, *REFUSED)}
    assert {name: names for name, names in missing.items() if names} == {}


@pytest.mark.parametrize("version", ["0.18.2", "0.20.3", "0.21.0", "0.23.0", "0.28.1"])
def test_the_common_part_compiles(patched, version):
    """headers.patch, headers-0.21.patch, span.patch, with the compiler of this machine."""
    tree = patched(version)
    sources = present(tree, "message.cc", "group_table.cc", "common.cc")
    assert compiling.errors(tree, sources, "-std=c++14") == {}


@pytest.mark.parametrize("version", ["0.23.0", "0.28.1"])
def test_a_span_assigns_no_constant(patched, version):
    """span.patch: GCC 14 refuses the template, older ones its first use; so no use, no offer."""
    tree = patched(version)
    (tree / "span.cc").write_text(
        '#include "flatbuffers/stl_emulation.h"\n#include <type_traits>\n'
        "using Span = flatbuffers::span<int>;\n"
        'static_assert(std::is_copy_constructible<Span>::value, "copied");\n'
        'static_assert(!std::is_copy_assignable<Span>::value, "assigned");\n'
    )
    assert compiling.errors(tree, ["span.cc"], "-std=c++14") == {}


@pytest.mark.parametrize("version", ["0.19.0", "0.19.1"])
def test_adasum_uses_fma_where_there_is_fma(patched, version):
    """fma.patch: what the preprocessor leaves for AVX and F16C alone, and with FMA."""
    used = {}
    for fma in (False, True):
        options = ["-D__AVX__=1", "-D__F16C__=1", "-D__FMA__=1" if fma else "-U__FMA__"]
        source = "horovod/common/ops/adasum/adasum.h"
        text = compiling.preprocessed(patched(version), source, *options)
        used[fma] = "dotProductVec = _mm256_fmadd_pd" in text
    assert used == {False: False, True: True}
