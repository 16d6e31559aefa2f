"""A Spack per pair, isolated in a scratch directory, and stand-ins for what a machine has."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from hvd.core import paths
from tests.conftest import chosen_pairs, copy_checkout

#: Distributions that the stand-in interpreter claims to have.
DISTRIBUTIONS = {
    "torch": "2.13.0",
    "numpy": "2.2.6",
    "cffi": "2.1.1",
    "cloudpickle": "3.1.2",
    "packaging": "26.0",
    "psutil": "7.2.2",
    "pyyaml": "6.0.3",
    "setuptools": "82.0.0",
    "mpi4py": "4.1.2",
}
TORCH = """
class version: cuda = None; hip = None
class _C: pass
class distributed:
    is_available = staticmethod(lambda: True)
    is_mpi_available = staticmethod(lambda: False)
    is_gloo_available = staticmethod(lambda: True)
"""


TENSORFLOW = """
class sysconfig:
    get_build_info = staticmethod(lambda: {"is_cuda_build": False, "is_rocm_build": False})
"""
#: What it claims as well for TensorFlow, whose NumPy and Keras are others.
WITH_TENSORFLOW = {"tensorflow-cpu": "2.18.1", "keras": "3.15.1", "numpy": "2.0.2"}


def pytest_generate_tests(metafunc):
    if "pair" in metafunc.fixturenames:
        metafunc.parametrize("pair", chosen_pairs(metafunc.config), scope="session")


@pytest.fixture(scope="session")
def scratch_state(tmp_path_factory):
    """Spack's state of these tests, apart from the checkout's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HVD_STATE", str(tmp_path_factory.mktemp("state")))
        yield paths.state()


@pytest.fixture(scope="session")
def spack(pair, find_spack, scratch_state):
    """The isolated Spack of ``pair``, configured."""
    found = find_spack(pair)
    found.configure(jobs=2)
    found.find_tools(scratch_state / "tools.log", [])
    return found


@pytest.fixture
def checkout(tmp_path):
    """A copy of this checkout."""
    return copy_checkout(tmp_path / "hvd")


def stand_in(
    directory: pathlib.Path, openmpi: str = "4.1.8", tensorflow: bool = False
) -> pathlib.Path:
    """An interpreter that claims to have PyTorch, or more, and an Open MPI beside it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    (library,) = (directory / "lib").glob("python3*/site-packages")
    distributions = {**DISTRIBUTIONS, **(WITH_TENSORFLOW if tensorflow else {})}
    for name, version in distributions.items():
        metadata = library / f"{name}-{version}.dist-info"
        metadata.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", ""]
        (metadata / "METADATA").write_text("\n".join(lines))
    for name, text in (("torch", TORCH), *([("tensorflow", TENSORFLOW)] * tensorflow)):
        (library / name).mkdir()
        (library / name / "__init__.py").write_text(text)
    for program in ("mpirun", "mpicxx"):
        script = directory / "bin" / program
        script.write_text(f"#!/bin/sh\necho 'mpirun (Open MPI) {openmpi}'\n")
        script.chmod(0o755)
    return directory / "bin" / "python"


@pytest.fixture(scope="session")
def path_without_mpi(tmp_path_factory) -> str:
    """PATH with everything but an MPI: that of a distribution is where its compilers are too."""
    entries, linked = [], set()
    for entry in map(pathlib.Path, os.environ.get("PATH", os.defpath).split(os.pathsep)):
        if (entry / "mpicxx").exists():
            # once: /bin may be another name of /usr/bin
            if entry.resolve() in linked:
                continue
            linked.add(entry.resolve())
            links = tmp_path_factory.mktemp("programs") / "bin"
            links.mkdir()
            for program in entry.iterdir():
                if not program.name.startswith("mpi"):
                    (links / program.name).symlink_to(program)
            entry = links
        entries.append(str(entry))
    return os.pathsep.join(entries)
