"""The image of `local-hvd`, carried out step by step: built, tested on two ranks, and used."""

import os
import shutil

import pytest

from hvd.core import paths
from hvd.deliver import container
from hvd.model import environment
from tests import needs
from tests.container import engine
from tests.ranks import PROGRAM, said

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot and mount are for root alone"),
    needs.programs("unshare", "chroot", "dpkg", "apt-get"),
]


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def image(request, tmp_path_factory):
    """The last stage, when every step has been carried out."""
    text = container.render(environment.load("local-hvd"), "containerfile", mpi=request.param)
    scratch = tmp_path_factory.mktemp(request.param)
    try:
        yield engine.carry_out(text, paths.ROOT, scratch)
    finally:
        shutil.rmtree(scratch)  # gigabytes


def test_any_user_runs_two_ranks(image):
    """Shifter and Apptainer run an image as the user who starts it."""
    image.user = "12345"
    image.inside("tmp/two.py").write_text(PROGRAM)
    allowed = {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
    output = image.run("mpirun -np 2 python /tmp/two.py", **allowed)
    assert said(output) == [(0, 2), (1, 2)] and output.count("uid 12345") == 2, output


def test_nothing_of_the_build_is_left(image):
    for program in ("c++", "git", "make"):
        assert image.run(f"command -v {program} || echo none") == "none\n"
    assert not image.inside("opt/hvd/packages").exists()


def test_the_hosts_mpi_takes_the_place_of_the_images(image):
    """LD_LIBRARY_PATH, as Shifter sets it and as Apptainer can, decides which MPI is loaded."""
    ask = "ldd $(ls /opt/horovod/lib/python3*/site-packages/horovod/torch/mpi_lib*.so)"
    words = set(image.run(ask).split())
    (library,) = [word for word in words if word.startswith("/opt/") and "libmpi.so" in word]
    image.run(f"mkdir -p /tmp/host && cp {library} /tmp/host/")
    assert "/tmp/host/libmpi.so" in image.run(ask, LD_LIBRARY_PATH="/tmp/host")
