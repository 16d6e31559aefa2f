"""Horovod's PyTorch plugin against the headers of PyTorch, commanded by Horovod's own CMake."""

import pytest

from tests import compiling, needs

pytestmark = needs.programs("c++", "cmake", "make")

#: Horovod and PyTorch, the ends of what the recipe's patches say, and a compiler.
BUILDS = (
    ("0.24.0", "2.1.2", "c++"),
    ("0.24.0", "2.15.0", "c++"),
    ("0.28.1", "2.0.1", "c++"),
    ("0.28.1", "2.1.2", "c++"),
    ("0.28.1", "2.13.0", "c++"),
    # of several sites; it reads a lambda within a lambda in another way than later ones
    pytest.param("0.28.1", "2.13.0", "g++-11", marks=needs.programs("g++-11")),
    ("0.28.1", "2.14.0", "c++"),
    ("0.28.1", "2.15.0", "c++"),
)


@pytest.mark.parametrize(("version", "pytorch", "compiler"), BUILDS)
def test_the_plugin_compiles(horovod_tree, framework_headers, version, pytorch, compiler):
    """cxx-standard.patch, integral-type.patch, torch-headers.patch"""
    include = framework_headers("torch", pytorch)
    tree = horovod_tree(version, f"+gloo frameworks=pytorch ^py-torch@{pytorch}")
    headers = [include, include / "torch" / "csrc" / "api" / "include"]
    plan = compiling.pytorch(tree, pytorch, headers=headers)
    sources = [source for source in plan.commands if source.startswith("horovod/torch/")]
    assert len(plan.commands) > 5 and sources
    refused = {source: plan.errors(source, compiler) for source in sources}
    assert {source: errors for source, errors in refused.items() if errors} == {}
