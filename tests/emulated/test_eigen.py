"""eigen.patch: objects of Horovod 0.25 that include Eigen, linked for Arm."""

from __future__ import annotations

import archspec.cpu
import pytest

from tests import compiling, debian_root

ROOT = "bookworm-arm64"
#: They include Eigen, and are in every plugin.
SOURCES = ("bayesian_optimization", "gaussian_process")


@pytest.mark.parametrize("variants, links", [(None, False), ("target=neoverse_v2", True)])
def test_objects_with_eigen_link_with_the_patch_alone(horovod_tree, variants, links):
    try:
        debian_root.make(ROOT)
    except debian_root.RootError as error:
        pytest.skip(str(error))
    tree = horovod_tree("0.25.0", variants)
    flags = archspec.cpu.TARGETS["neoverse_v2"].optimization_flags("gcc", "12.2.0")
    compile = ["c++", "-std=c++14", "-w", "-fPIC", "-c", *flags.split(), "-DEIGEN_MPL2_ONLY=1"]
    compile += compiling.includes(tree)
    compile += [str(tree / f"horovod/common/optim/{name}.cc") for name in SOURCES]
    # what does not compile is another status than what does not link
    steps = 'cd /tmp && "$@" || exit 99; c++ -shared -o out.so *.o'
    places = [str(tree), str((tree / "third_party" / "boost").resolve())]
    status = debian_root.run(ROOT, ["sh", "-c", steps, "sh", *compile], places)
    assert status == (0 if links else 1)
