"""What goes into the frameworks' virtual environment."""

from __future__ import annotations

import pathlib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from hvd.core.errors import HvdError
from hvd.host import framework
from hvd.host.mpi import Mpi
from hvd.model.versions import pinned
from tests.checkout import script

MPI = Mpi("openmpi", "4.1.8", pathlib.Path("/opt/mpi"))


def chosen(*frameworks: str, python: str = "3.11", machine: str = "x86_64") -> dict:
    """The versions that pip would take, by distribution."""
    wanted = map(Requirement, framework.requirements(frameworks, MPI))
    markers = {"python_version": python, "platform_machine": machine}
    found: dict = {}
    for each in wanted:
        if each.marker is None or each.marker.evaluate(markers):
            assert each.name not in found, f"{each.name} twice"
            found[each.name] = str(each.specifier).lstrip("=")
    return found


def test_every_framework_has_its_own() -> None:
    torch, tensorflow = chosen("pytorch"), chosen("tensorflow")
    assert "torch" in torch and "tensorflow-cpu" not in torch
    assert "tensorflow-cpu" in tensorflow and "torch" not in tensorflow
    for both in (torch, tensorflow):
        assert {"numpy", "cffi", "cloudpickle", "psutil", "mpi4py"} <= set(both)


@pytest.mark.parametrize("python", ["3.10", "3.11"])
def test_frameworks_share_one_environment(python) -> None:
    found = chosen("pytorch", "tensorflow", python=python)
    assert {"torch", "tensorflow-cpu", "keras", "numpy"} <= set(found)
    assert found.items() >= chosen("keras", "tensorflow", python=python).items()


def test_versions_are_those_that_tensorflow_and_horovod_take() -> None:
    # tensorflow/tools/pip_package/setup.py of 2.21
    assert chosen("tensorflow")["numpy"] in SpecifierSet(">=1.26")
    assert chosen("tensorflow")["keras"] in SpecifierSet(">=3.12")
    found = chosen("tensorflow", machine="aarch64")
    assert "tensorflow" in found and "tensorflow-cpu" not in found


def test_mpi_is_installed_where_there_is_none() -> None:
    assert pinned().framework.mpi in framework.requirements(["pytorch"], None)
    assert pinned().framework.mpi not in framework.requirements(["pytorch"], MPI)
    with pytest.raises(HvdError, match="mxnet"):
        framework.requirements(["mxnet"], MPI)


#: Makes a virtual environment, with a copy of itself.
VENV = '[ "$2" = venv ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"'


@pytest.fixture
def created(tmp_path, monkeypatch):
    """A function that makes PyTorch's virtual environment with a stand-in for Python."""

    def create(body: str, **options) -> pathlib.Path:
        python = script(tmp_path / "python", body)
        monkeypatch.setattr(framework, "interpreter", lambda frameworks: str(python))
        executable = tmp_path / "v" / "bin" / "python"
        monkeypatch.setattr(framework, "place", lambda frameworks: executable)
        framework.create(["pytorch"], tmp_path / "log", MPI, **options)
        return tmp_path / "v" / "stamp"

    return create


def test_where_pip_fails_the_index_is_named(created, tmp_path) -> None:
    """And nothing counts as made."""
    with pytest.raises(HvdError) as raised:
        created(VENV)
    assert "pip config list" in raised.value.remedy and not (tmp_path / "v" / "stamp").exists()


def test_frameworks_for_cuda_are_refused_before_pip_takes_gigabytes(created, tmp_path) -> None:
    """Unless Horovod is to be built for it."""
    told = (
        f'{VENV}; case "$*" in *--dry-run*) echo "Would install torch-2.13.0 nvidia-nccl-1";; esac'
    )
    with pytest.raises(HvdError, match="gigabytes") as raised:
        created(told)
    assert "PIP_EXTRA_INDEX_URL" in raised.value.remedy
    assert not (tmp_path / "v" / "stamp").exists()
    assert created(told, cuda=True).exists()


def test_the_interpreter_suits_every_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"tool": "3.14.0", "python3.12": "3.12.1"}
    monkeypatch.setattr(framework.sys, "executable", "tool")
    monkeypatch.setattr(framework.shutil, "which", lambda name: name if name in versions else None)
    monkeypatch.setattr(framework, "version", versions.__getitem__)
    monkeypatch.setattr(framework.os.path, "realpath", str)
    assert framework.interpreter(["pytorch"]) == "tool"
    assert framework.interpreter(["pytorch", "tensorflow"]) == "python3.12"
    del versions["python3.12"]
    with pytest.raises(HvdError, match="PATH has none"):
        framework.interpreter(["tensorflow", "keras"])


def test_directories_of_the_system_stay_behind_on_path(tmp_path, monkeypatch) -> None:
    """A compiler and a CMake that the user has put first are those that build."""
    system, mine = tmp_path / "usr" / "bin", tmp_path / "cmake" / "bin"
    script(system / "mpirun")
    monkeypatch.setattr(framework, "_SYSTEM", (system,))
    monkeypatch.setenv("PATH", f"{mine}:{system}")
    library = Mpi("openmpi", "4.1.4", system.parent)
    assert framework.in_front("/site/bin/python", library) == [pathlib.Path("/site/bin")]
    assert framework.in_front(str(system / "python3"), None) == []
    elsewhere = Mpi("openmpi", "4.1.4", tmp_path / "opt")
    assert framework.in_front(str(system / "python3"), elsewhere) == [elsewhere.bin]
    # another program of that name, without a compiler wrapper beside it
    script(mine / "mpirun")
    assert framework.in_front("/site/bin/python", library)[1:] == [system]


def test_cmake_is_asked_for_its_version(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert framework.system_cmake() is None
    for text, version in (("cmake version 3.31.10-rc1", "3.31.10"), ("cmake version 3.9.6", "")):
        path = script(tmp_path / "cmake", f"echo {text}")
        assert framework.cmake_version(str(path)).startswith(version)
        assert framework.system_cmake() == (str(path) if version else None)
    script(tmp_path / "cmake", "echo it is broken")
    assert framework.system_cmake() is None


@pytest.fixture
def beside(monkeypatch, tmp_path):
    """A function that provides what an interpreter lacks, of what is in ``beside.have``.

    It returns the interpreter, the names that were added, and whether pip was run.
    """

    def run():
        started: list = []
        monkeypatch.setattr(framework.process, "run", lambda words, **_: started.extend(words))
        python, added = framework.beside("/opt/python", tmp_path / "venv", tmp_path / "log")
        assert not started or started[-len(added) :] == added
        return python, [Requirement(text).name for text in added], bool(started)

    names = [Requirement(text).name for text in framework.requirements((), MPI)]
    run.have = {name: {"version": "82.0.0"} for name in names}
    run.mpi = MPI
    found = {"python": {}, "distributions": run.have}
    monkeypatch.setattr(framework.externals, "ask", lambda python: found)
    monkeypatch.setattr(framework.externals, "find_mpi", lambda found: run.mpi)
    monkeypatch.setattr(framework, "system_cmake", lambda: "/usr/bin/cmake")
    monkeypatch.setattr(framework, "venv_over", lambda found, directory, log: None)
    return run


def test_what_is_missing_is_installed_once_beside_an_interpreter(beside, tmp_path) -> None:
    assert beside() == ("/opt/python", [], False)
    del beside.have["cffi"]
    beside.mpi = None
    python = str(tmp_path / "venv" / "bin" / "python")
    assert beside() == (python, ["cffi", "openmpi"], True)
    assert beside() == (python, ["cffi", "openmpi"], False)


def test_an_old_setuptools_is_replaced_beside_an_interpreter(beside) -> None:
    """The venv of Python 3.11 has setuptools 65 and no wheel."""
    beside.have["setuptools"] = {"version": "65.5.0"}
    assert beside()[1] == ["setuptools"]
    beside.have["wheel"] = {"version": "0.38.4"}
    assert beside()[1] == []
