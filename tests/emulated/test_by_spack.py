"""Spack in a root of another processor: its Python is emulated, its compilers are native."""

from __future__ import annotations

import pytest

from hvd.model.versions import pinned
from tests.checkout import copy_checkout
from tests.conftest import locate_spack
from tests.emulated import roots

TARGET = "power9le"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("ppc64el")
    # into the cache, which the root sees
    locate_spack(pinned().pairs[0].name, scratch / "log")
    root = roots.make("bookworm-ppc64el", copy_checkout(scratch / "hvd"))
    return roots.build(root, TARGET, "spack")


def spack(built, command):
    return built.root.run("bash", "-c", f". .hvd/setup-env.sh && spack {command}")


def test_spack_installs_it_for_the_processor(built):
    assert spack(built, "find --format {architecture.target} py-horovod").split()[-1] == TARGET
    assert built.report.versions["gcc"]
    assert len(built.checks) == 4 and all(each["passed"] for each in built.checks.values())


def test_spack_tests_it(built):
    assert "1 passed of 1 spec" in spack(built, "test run py-horovod")
