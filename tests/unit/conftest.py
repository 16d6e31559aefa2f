"""What unit tests share."""

from __future__ import annotations

import pathlib
import tarfile
from typing import Dict, NamedTuple

import pytest

from hvd.model import specs
from hvd.report import RunReport
from tests.conftest import sdist
from tests.unit import reports


class Done(NamedTuple):
    """A command that is over."""

    status: int
    out: str
    err: str


#: What decides how Horovod is built, in every release.
BUILD_SYSTEM = ("setup.py", "CMakeLists.txt", "build_utils.py")


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path) -> pathlib.Path:
    """A directory for what ``./hvd`` writes of a checkout, so that no test uses the real one."""
    monkeypatch.setenv("HVD_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def report() -> RunReport:
    """The report of a run that passed."""
    return reports.passed()


@pytest.fixture(scope="session")
def horovod_build_systems(py_horovod) -> Dict[str, str]:
    """Release to the text of everything that decides how it is built: sdist, and patches."""
    texts = {}
    for version in py_horovod.versions():
        with tarfile.open(sdist(py_horovod, version)) as archive:
            texts[version] = "\n".join(
                archive.extractfile(member).read().decode()
                for member in archive
                if member.isfile() and _builds(member.name.partition("/")[2])
            )
        for patch in py_horovod.patches(specs.parse(f"py-horovod@{version}+cuda+ddl")):
            _, *files = patch.read_text().split("\n--- a/")
            texts[version] += "\n".join(text for text in files if _builds(text.split()[0]))
    return texts


def _builds(name: str) -> bool:
    if name.startswith("third_party/"):
        return False
    return name.startswith("cmake/") or name.endswith(BUILD_SYSTEM)


@pytest.fixture
def hvd(capsys):
    """Run ``./hvd`` in this process; its status, its output and what it says on stderr."""
    from hvd.cli import main as cli

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main([*map(str, arguments)])
        return Done(ended.value.code or 0, *capsys.readouterr())

    return run


@pytest.fixture
def launched(monkeypatch, hvd):
    """Run ``./hvd launch`` in this process, in no job but what ``environ`` says."""

    def run(arguments, **environ) -> Done:
        with monkeypatch.context() as patch:
            for name in ("SLURM_JOB_NODELIST", "LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS"):
                patch.delenv(name, raising=False)
            for name, value in environ.items():
                patch.setenv(name, value)
            return hvd("launch", *arguments)

    return run


@pytest.fixture
def workplace(monkeypatch, tmp_path):
    """State, logs and cache of its own; this machine has GCC and Open MPI."""
    from hvd.core import process
    from hvd.host import externals, machine
    from hvd.host.mpi import Mpi

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(process, "adopt_orphans", lambda: None)
    monkeypatch.setattr(machine, "compiler_name", lambda: "gcc")
    monkeypatch.setattr(machine, "compiler_version", lambda: "12.2.0")
    library = Mpi("openmpi", "4.1.8", pathlib.Path("/opt/mpi"))
    monkeypatch.setattr(externals, "find_mpi", lambda found: library)
    return tmp_path
