"""Look at a machine: the facts of an environment."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

import cattrs
import yaml
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.doctor import driver, imports
from hvd.fetch import clone
from hvd.host import externals, mpi
from hvd.model import environment, solution
from hvd.model.built import Built, find
from hvd.model.environment import Environment
from hvd.smoke.launch import Target
from hvd.smoke.run import FRAMEWORKS, check_build_items
from hvd.solve import location, site_check

#: File names of the MPI libraries that Horovod can be linked with begin so.
MPI_LIBRARIES = ("libmpi.so", "libmpi_ibm.so", "libmpich", "libmpi_cray", "libmpi_gnu")
#: Seconds for what imports a framework.
_TIMEOUT = 300
#: https://docs.kernel.org/admin-guide/abi-stable-files.html#abi-file-stable-sysfs-class-infiniband
_ADAPTERS = pathlib.Path("/sys/class/infiniband")
#: A library and its place, in what ldd prints.
_FOUND = re.compile(r"^\s*(\S+) => (/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Launcher:
    """An ``mpirun``."""

    path: str
    version: str = ""  #: such as "openmpi 4.1.8"; empty if it does not say


@dataclasses.dataclass(frozen=True)
class Spack:
    """The Spack that built, as it is now."""

    pair: str  #: as recorded; empty if it was not
    root: str
    version: str  #: ``major.minor``; empty if it is gone
    commits: Mapping[str, str]  #: by repository, "spack" or "packages"


@dataclasses.dataclass(frozen=True)
class Gpus:
    """The answers of the NVIDIA driver."""

    driver: Optional[Tuple[int, int]] = None  #: the latest CUDA that it supports, as (12, 4)
    reason: str = ""  #: why there is no driver or no GPU
    capabilities: Tuple[str, ...] = ()  #: of each GPU, as "8.0"
    names: Tuple[str, ...] = ()  #: of each GPU, as "NVIDIA H200"


@dataclasses.dataclass(frozen=True)
class Facts:
    """All that is diagnosed; "the shell" is that in which ./hvd doctor was called."""

    name: str  #: of the environment that was asked for
    built: Optional[Built] = None
    not_built: str = ""  #: why there is no build
    remedy: str = ""  #: how to build it
    changed: Tuple[str, ...] = ()  #: files that changed since it was built
    shell: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: variables of the shell
    fabric: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: those the site needs
    spack: Optional[Spack] = None  #: None if pip built it
    imports: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: errors by framework
    check_build: Tuple[str, ...] = ()  #: differences of horovodrun --check-build from the spec
    needed: FrozenSet[str] = frozenset()  #: libraries and symbols that Horovod's libraries name
    loaded: Tuple[str, ...] = ()  #: paths of the libraries in a process with Horovod
    mpi: str = ""  #: the MPI among them, as "openmpi 4.1.8"; empty if it does not say
    launcher: Optional[Launcher] = None  #: the environment's mpirun
    shell_launcher: Optional[Launcher] = None  #: the shell's
    compiler: Optional[Tuple[str, bool]] = None  #: what mpicxx calls, and if that is on PATH
    transports: FrozenSet[str] = frozenset()  #: Open MPI's components, as "pml ucx"
    adapters: Tuple[str, ...] = ()  #: InfiniBand, RoCE and Omni-Path: what the kernel has of them
    toolkit: Optional[str] = None  #: the framework's CUDA version
    architectures: Tuple[str, ...] = ()  #: the framework's GPU architectures
    gpus: Gpus = Gpus()
    #: library to the path without the shell's LD_LIBRARY_PATH, and that with it
    shadowed: Mapping[str, Tuple[str, str]] = dataclasses.field(default_factory=dict)

    @property
    def active(self) -> bool:
        """True if the shell has activated the environment, by whichever means."""
        if not self.built:
            return False
        own = {**self.built.variables, activation.MARK: self.built.name}
        marks = (activation.MARK, "SPACK_ENV", "VIRTUAL_ENV")
        return any(name in own and self.shell.get(name) == own[name] for name in marks)

    def library(self, *names: str) -> List[str]:
        """The loaded libraries whose file names begin with one of ``names``."""
        return [path for path in self.loaded if path.rpartition("/")[2].startswith(names)]


def gpus(shell: Mapping[str, str]) -> Gpus:
    """Return the answers of the NVIDIA driver to a process with the variables of ``shell``."""
    said = process.output(sys.executable, driver.__file__, env=shell)
    found = json.loads(said or '{"reason": "the CUDA driver does not answer"}')
    return cattrs.structure(found, Gpus)


def _lacking(chosen: Environment) -> str:
    """Return what this machine lacks to build a site's environment, and what to do."""
    lock = chosen.lockfile
    try:
        if lock.exists():
            site_check.require_here(chosen, solution.read(lock.read_text(), lock.name))
    except HvdError as error:
        return f"{error.message}; {error.remedy}"
    return ""


def facts(name: str, engine: str, shell: Mapping[str, str]) -> Facts:
    """Return everything there is to know here about the environment ``name``.

    Args:
        shell: the environment that the command was called in.

    Raises:
        HvdError: there is no such environment.
    """
    chosen = environment.load(name)
    try:
        built = find(name, engine)
        plan = activation.plan(built)
    except HvdError as error:
        remedy = _lacking(chosen) or error.remedy
        return Facts(name, not_built=error.message, remedy=remedy, shell=shell)
    own = plan.applied({k: v for k, v in shell.items() if k != "LD_LIBRARY_PATH"})
    after = plan.applied(shell)
    python = shutil.which("python", path=own["PATH"]) or "python"
    said = _import(built, python, after)
    process.adopt_orphans()
    target = Target(pathlib.Path(python), after)
    logs = paths.state() / "logs" / built.name / "doctor"
    launcher = _launcher(own)
    compiler = process.output("mpicxx", "-show", env=own).partition(" ")[0]
    components = process.output("ompi_info", "--parsable", env=own)
    transports = re.findall(r"^mca:(pml|mtl):(\w+):version", components, re.MULTILINE)
    site, _ = activation.place(built)
    nodes = shell.get("SLURM_JOB_NUM_NODES", "")
    watched = [*said["extensions"], python, *([launcher.path] if launcher else [])]
    watched += [p for p in said["loaded"] if os.path.basename(p).startswith(MPI_LIBRARIES)]
    return Facts(
        name,
        built,
        changed=tuple(built.changed()),
        shell=shell,
        fabric=site.variables(built.case, int(nodes) if nodes.isdigit() else 2) if site else {},
        spack=_spack(built) if built.engine == "spack" else None,
        imports=said["imports"],
        check_build=tuple(check_build_items(target, built.expectation, logs, _TIMEOUT).failures),
        needed=frozenset().union(*map(_needs, said["extensions"])),
        loaded=tuple(said["loaded"]),
        mpi=" ".join(mpi.of_library(said["mpi"]) or ()),
        launcher=launcher,
        shell_launcher=_launcher(shell),
        compiler=(compiler, bool(shutil.which(compiler, path=own["PATH"]))) if compiler else None,
        transports=frozenset(" ".join(each) for each in transports),
        adapters=tuple(sorted(path.name for path in _ADAPTERS.glob("*"))),
        gpus=gpus(shell),
        shadowed=_shadowed(watched, own, after) if shell.get("LD_LIBRARY_PATH") else {},
        **_framework(built, python, after),
    )


def _import(built: Built, python: str, variables: Mapping[str, str]) -> Dict[str, Any]:
    """Return what a process that imports Horovod has; see ``imports.py``."""
    names = [FRAMEWORKS.get(name, name) for name in sorted(built.expectation.frameworks)]
    command = [python, imports.__file__, *(f"horovod.{name}" for name in names)]
    problem = ""
    try:
        done = subprocess.run(
            command, env=dict(variables), capture_output=True, text=True, timeout=_TIMEOUT
        )
        problem = done.stderr.strip().rpartition("\n")[2]
        said = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        failed = dict.fromkeys(names, problem or str(error))
        return {"imports": failed, "loaded": [], "extensions": [], "mpi": ""}
    said["imports"] = {name: said["imports"][f"horovod.{name}"] for name in names}
    return said


def _needs(path: str) -> FrozenSet[str]:
    """Return the libraries and the undefined symbols that the file at ``path`` names."""
    try:
        with open(path, "rb") as stream:
            file = ELFFile(stream)
            dynamic = file.get_section_by_name(".dynamic")
            tags = dynamic.iter_tags("DT_NEEDED") if isinstance(dynamic, DynamicSection) else ()
            table = file.get_section_by_name(".dynsym")
            symbols = table.iter_symbols() if table else ()
            undefined = {each.name for each in symbols if each["st_shndx"] == "SHN_UNDEF"}
            return frozenset(undefined | {tag.needed for tag in tags})
    except (OSError, ELFError):
        return frozenset()  # the import says what is wrong with it


def _shadowed(
    files: Iterable[str], without: Mapping[str, str], having: Mapping[str, str]
) -> Dict[str, Tuple[str, str]]:
    """Return the libraries that the loader finds elsewhere in a second environment, and where.

    This asks the loader itself, by ldd, which is for files that are trusted to run.
    """
    places: List[Dict[str, str]] = []
    for variables in (without, having):
        found: Dict[str, str] = {}
        for file in files:
            for name, path in _FOUND.findall(process.output("ldd", file, env=variables)):
                found.setdefault(name, path)
        places.append(found)
    before, after = places
    return {
        name: (before[name], after[name])
        for name in sorted(set(before) & set(after))
        if before[name] != after[name]
    }


def _launcher(variables: Mapping[str, str]) -> Optional[Launcher]:
    path = shutil.which("mpirun", path=variables.get("PATH", os.defpath))
    return Launcher(path, " ".join(mpi.of_launcher(path) or ())) if path else None


def _framework(built: Built, python: str, variables: Mapping[str, str]) -> Dict[str, Any]:
    """Return CUDA version and architectures of the framework, for builds with CUDA."""
    if built.gpu != "cuda":
        return {}
    try:
        asked = externals.ask(python, variables)["frameworks"].values()
    except (HvdError, subprocess.SubprocessError):
        return {}
    for each in asked:
        if "architectures" in each:
            toolkit = None if each["cuda"] == "unknown" else each["cuda"]
            return {"toolkit": toolkit, "architectures": tuple(each["architectures"])}
    return {}


def _spack(built: Built) -> Spack:
    root = pathlib.Path(built.variables.get("SPACK_ROOT", ""))
    pair, commits = "", {"spack": clone.commit(root)}
    try:
        pair = (paths.state() / f"{built.environment}.pair").read_text().strip()
        text = (paths.state() / pair / "config" / "repos.yaml").read_text()
        builtin = pathlib.Path(yaml.safe_load(text)["repos"]["builtin"])
        # .../repos/spack_repo/builtin
        commits["packages"] = clone.commit(builtin.parents[2])
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        pass  # a check says that it is not known
    return Spack(pair, str(root), location.version(root), commits)
