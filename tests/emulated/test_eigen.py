"""eigen.patch: objects of Horovod 0.25 that include Eigen, linked for Arm."""

from __future__ import annotations

import archspec.cpu
import pytest

from hvd.core.errors import HvdError
from hvd.host import debian
from tests import compiling

#: They include Eigen, and are in every plugin.
SOURCES = ("bayesian_optimization", "gaussian_process")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    try:
        return debian.root("bookworm-arm64", tmp_path_factory.mktemp("root") / "log")
    except HvdError as error:
        pytest.skip(f"{error.message}: {error.remedy}")


@pytest.mark.parametrize("variants, links", [(None, False), ("target=neoverse_v2", True)])
def test_objects_with_eigen_link_with_the_patch_alone(root, horovod_tree, variants, links):
    tree = horovod_tree("0.25.0", variants)
    flags = archspec.cpu.TARGETS["neoverse_v2"].optimization_flags("gcc", "12.2.0")
    compile = ["c++", "-std=c++14", "-w", "-fPIC", "-c", *flags.split(), "-DEIGEN_MPL2_ONLY=1"]
    compile += compiling.includes(tree)
    compile += [str(tree / f"horovod/common/optim/{name}.cc") for name in SOURCES]
    # what does not compile is another status than what does not link
    steps = 'cd /tmp && "$@" || exit 99; c++ -shared -o out.so *.o'
    status = debian.run(root, ["sh", "-c", steps, "sh", *compile], [str(tree)])
    assert status == (0 if links else 1)
