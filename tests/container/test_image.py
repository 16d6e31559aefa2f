"""The image of `local-hvd`, carried out step by step: built, tested on two ranks, and used."""

import shutil

import pytest

from hvd.core import paths
from hvd.deliver.container import plan, recipe
from hvd.model import environment
from tests.conftest import unmet
from tests.container import engine

#: What a user does in it: two ranks sum, as somebody whom the image does not know.
PROGRAM = """
import os
import horovod.torch as hvd
import torch
hvd.init()
total = hvd.allreduce(torch.ones(3) * (hvd.rank() + 1), op=hvd.Sum)
os.write(1, f"rank {hvd.rank()} of {hvd.size()}: {total.tolist()} uid {os.getuid()}\\n".encode())
"""


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def image(request, tmp_path_factory):
    """The last stage, when every step has been carried out."""
    chosen = plan.make(environment.load("local-hvd"), mpi=request.param)
    scratch = tmp_path_factory.mktemp(request.param)
    try:
        yield engine.carry_out(recipe.render(chosen, "containerfile"), paths.ROOT, scratch)
    except engine.Unable as error:
        unmet(request.config, "container", str(error))
    finally:
        shutil.rmtree(scratch)  # gigabytes


def test_any_user_runs_two_ranks(image):
    """Shifter and Apptainer run an image as the user who starts it."""
    image.user = "12345"
    image.inside("tmp/two.py").write_text(PROGRAM)
    done = image.run("mpirun -np 2 python /tmp/two.py", OMPI_MCA_rmaps_base_oversubscribe="1")
    assert done.returncode == 0, done.stdout
    for rank in range(2):
        assert f"rank {rank} of 2: [3.0, 3.0, 3.0] uid 12345" in done.stdout


def test_nothing_of_the_build_is_left(image):
    for program in ("c++", "git", "make"):
        assert image.run(f"command -v {program}").returncode != 0, program
    assert not image.inside("opt/hvd/packages").exists()


def test_the_hosts_mpi_takes_the_place_of_the_images(image):
    """LD_LIBRARY_PATH, as Shifter sets it and as Apptainer can, decides which MPI is loaded."""
    ask = "ldd $(ls /opt/horovod/lib/python3*/site-packages/horovod/torch/mpi_lib*.so)"
    (library,) = {
        word
        for word in image.run(ask).stdout.split()
        if word.startswith("/opt/") and "libmpi.so" in word
    }
    image.run("mkdir -p /tmp/host && cp " + library + " /tmp/host/")
    assert "/tmp/host/libmpi.so" in image.run(ask, LD_LIBRARY_PATH="/tmp/host").stdout
