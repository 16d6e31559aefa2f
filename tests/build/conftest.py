"""Patched sources, and real module tools."""

from __future__ import annotations

import functools

import pytest

from hvd.deliver.modulefile import TOOLS
from tests.build import module_tools
from tests.build.security import sources
from tests.build.unbuilt import Unbuilt


@pytest.fixture(scope="session")
def tree(shared_tree):
    """A function that gives the patched sources of a version."""
    return functools.partial(shared_tree, variants="+mpi+gloo frameworks=pytorch")


@pytest.fixture
def unbuilt(tree, tmp_path):
    """A function that gives the patched Python code of a version, to run without a build."""
    return lambda version: Unbuilt(tree(version), tmp_path / "horovod")


@pytest.fixture(scope="session")
def secured(shared_tree):
    """A function that gives the sources of a version with the recipe's security patches."""
    return functools.partial(shared_tree, variants=sources.VARIANTS)


@pytest.fixture(params=TOOLS)
def tool(request) -> module_tools.ModuleTool:
    """A real module tool, each in turn."""
    return module_tools.install(request.param)
