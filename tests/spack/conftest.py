"""A Spack per pair, isolated in a scratch directory, and stand-ins for what a machine has."""

from __future__ import annotations

import json
import os
import pathlib
import re
import sys
from typing import Dict, List

import pytest

from hvd.core import paths
from hvd.solve.spack import Spack
from tests.checkout import copy_checkout, run, script
from tests.conftest import chosen_pairs, locate_spack

#: Distributions that the stand-in interpreter claims to have.
DISTRIBUTIONS = {
    "torch": "2.13.0",
    "numpy": "2.2.6",
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
def located(pair, tmp_path_factory):
    """The isolated Spack of ``pair``, whose state is apart from the checkout's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HVD_STATE", str(tmp_path_factory.mktemp("state")))
        yield locate_spack(pair, paths.state() / "locate.log")


@pytest.fixture(scope="session")
def spack(located):
    """The isolated Spack of ``pair``, configured."""
    located.configure(jobs=2)
    located.find_tools(paths.state() / "tools.log", [])
    return located


@pytest.fixture(scope="session")
def evaluate(spack, tmp_path_factory):
    """A function that gives what recipes say against specs, by spec."""

    def said(texts: List[str]) -> Dict[str, List[str]]:
        scratch = tmp_path_factory.mktemp("specs")
        (scratch / "specs.json").write_text(json.dumps(texts))
        program = pathlib.Path(__file__).with_name("evaluate_constraints.py")
        words = ["python", program, scratch / "specs.json"]
        output = spack.run(*words, log=scratch / "log", timeout=300).output
        return dict(zip(texts, json.loads(output.splitlines()[-1])))

    return said


@pytest.fixture
def checkout(tmp_path):
    """A copy of this checkout."""
    return copy_checkout(tmp_path / "hvd")


def variables(spack: Spack, scope: pathlib.Path, cache: pathlib.Path) -> Dict[str, str]:
    """The environment for a Spack with a user's configuration and cache in these directories."""
    return {
        **spack.environment(),
        "SPACK_USER_CONFIG_PATH": str(scope),
        "SPACK_USER_CACHE_PATH": str(cache),
    }


def warnings(state: pathlib.Path) -> List[str]:
    """The lines of all logs below ``state`` in which Spack warns."""
    return [
        f"{log.name}: {line}"
        for log in sorted((state / "logs").rglob("*.log"))
        for line in log.read_text().splitlines()
        if "Warning" in line or "deprecated" in line
    ]


def solution(file: pathlib.Path) -> Dict[str, dict]:
    """The nodes of a ``spack.lock`` by the names of their packages."""
    nodes = json.loads(file.read_text())["concrete_specs"].values()
    return {node["name"]: node for node in nodes}


def stand_in(
    directory: pathlib.Path, openmpi: str = "4.1.8", tensorflow: bool = False
) -> pathlib.Path:
    """An interpreter that claims to have PyTorch, or more, and an Open MPI beside it."""
    run([sys.executable, "-m", "venv", "--without-pip", directory])
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
        script(directory / "bin" / program, f"echo 'mpirun (Open MPI) {openmpi}'")
    return directory / "bin" / "python"


def gpu_stand_in(directory: pathlib.Path) -> pathlib.Path:
    """The same, whose PyTorch is for the GPUs of CUDA 12.4 with capabilities 8.0 and 9.0."""
    python = stand_in(directory)
    (module,) = directory.glob("lib/python3*/site-packages/torch/__init__.py")
    flags = "class _C:\n    _cuda_getArchFlags = staticmethod(lambda: 'sm_80 sm_90')"
    text = TORCH.replace("cuda = None", "cuda = '12.4'").replace("class _C: pass", flags)
    module.write_text(text)
    return python


def path_without(pattern: str, directory: pathlib.Path) -> str:
    """PATH without the programs whose names match ``pattern``.

    An entry that has one gives way to a directory of links, as a distribution has MPI and
    Fortran where its other compilers are.
    """
    entries: Dict[pathlib.Path, pathlib.Path] = {}
    for place in map(pathlib.Path, os.environ["PATH"].split(os.pathsep)):
        found = list(place.glob("*"))
        kept = [program for program in found if not re.fullmatch(pattern, program.name)]
        # once: /bin may be another name of /usr/bin
        entry = entries.setdefault(place.resolve(), place)
        if entry is place and kept != found:
            # Spack takes the directory above `bin` for the prefix of what is in it
            links = entries[place.resolve()] = directory / str(len(entries)) / "bin"
            links.mkdir(parents=True)
            for program in kept:
                (links / program.name).symlink_to(program)
    return os.pathsep.join(map(str, entries.values()))
