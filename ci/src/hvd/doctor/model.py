"""What the checks look at, and what they say."""

from __future__ import annotations

import dataclasses
import enum
from typing import Dict, List, Mapping, Optional, Tuple

from hvd.deliver.activation.parts import MARK
from hvd.deliver.activation.plan import Plan
from hvd.model.built import Built


class State(str, enum.Enum):
    """How a check ended; what could not be looked at is not known, which is not ok."""

    ok = "ok"
    warn = "warn"
    fail = "fail"
    unknown = "not known"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a check found.

    Args:
        check: what was looked at.
        finding: what was seen, in a sentence without its end.
        remedy: what to do where it is not ok.
    """

    check: str
    state: State
    finding: str
    remedy: str = ""

    def to_dict(self) -> Dict[str, str]:
        """The finding as JSON has it."""
        return {**dataclasses.asdict(self), "state": self.state.value}


@dataclasses.dataclass(frozen=True)
class Version:
    """A kind of MPI, by Spack's name, and its version."""

    package: str
    version: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


@dataclasses.dataclass(frozen=True)
class Launcher:
    """An ``mpirun``: its path, where links to it end, and what it says that it is."""

    path: str
    real: str
    version: Optional[Version] = None


@dataclasses.dataclass(frozen=True)
class Extension:
    """One of Horovod's compiled libraries.

    Args:
        needed: the libraries that its dynamic section names.
        undefined: the symbols that others have to define.
    """

    path: str
    needed: Tuple[str, ...]
    undefined: frozenset


@dataclasses.dataclass(frozen=True)
class Spack:
    """The Spack that built: the pair's name, and what is there of it now.

    Args:
        pair: as it was recorded; empty where it was not.
        version: ``major.minor`` of the one at ``root``; empty where there is none.
        commits: repository (``spack``, ``packages``) to the commit that it is at.
    """

    pair: str
    root: str
    version: str
    commits: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Gpus:
    """What the NVIDIA driver says.

    Args:
        driver: the CUDA version that it supports, such as (12, 4); None without a driver.
        reason: why there is none.
        capabilities: of each GPU, such as ``8.0``.
    """

    driver: Optional[Tuple[int, int]] = None
    reason: str = ""
    capabilities: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Facts:
    """Everything that the checks look at; tests make it up.

    Args:
        name: of the environment that was asked for.
        built: it as it was built; None where it was not.
        not_built: why not.
        remedy: how to build it.
        changed: the files that are not as they were when it was built.
        plan: what activates it.
        shell: the environment that ``./hvd doctor`` was called in.
        fabric: the variables that the site asks for.
        spack: the Spack that built it; None for pip.
        imports: framework to the error that its import ended with, empty where it had none.
        check_build: differences of ``horovodrun --check-build`` from the spec.
        extensions: Horovod's compiled libraries.
        loaded: paths of the libraries that a process has which imported Horovod.
        mpi: what the MPI library that was loaded says that it is, None without one.
        launcher: ``mpirun`` of the environment.
        shell_launcher: ``mpirun`` of the calling shell.
        compiler: the program that MPI's compiler wrapper calls, and whether it is on PATH.
        toolkit: CUDA version that the framework was built with; None for none.
        architectures: GPU architectures that the framework was built for.
        gpus: what the driver says.
        shadowed: library to where it is found without the shell's LD_LIBRARY_PATH, and with it.
    """

    name: str
    built: Optional[Built] = None
    not_built: str = ""
    remedy: str = ""
    changed: Tuple[str, ...] = ()
    plan: Optional[Plan] = None
    shell: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fabric: Mapping[str, str] = dataclasses.field(default_factory=dict)
    spack: Optional[Spack] = None
    imports: Mapping[str, str] = dataclasses.field(default_factory=dict)
    check_build: Tuple[str, ...] = ()
    extensions: Tuple[Extension, ...] = ()
    loaded: Tuple[str, ...] = ()
    mpi: Optional[Version] = None
    launcher: Optional[Launcher] = None
    shell_launcher: Optional[Launcher] = None
    compiler: Optional[Tuple[str, bool]] = None
    toolkit: Optional[str] = None
    architectures: Tuple[str, ...] = ()
    gpus: Gpus = Gpus()
    shadowed: Mapping[str, Tuple[str, str]] = dataclasses.field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Whether the calling shell has activated the environment, by whichever means."""
        if self.built is None:
            return False
        captured = self.built.variables
        names = [name for name in ("SPACK_ENV", "VIRTUAL_ENV") if name in captured]
        marks = {name: captured[name] for name in names}
        marks[MARK] = self.built.name
        return any(self.shell.get(name) == value for name, value in marks.items())

    @property
    def activate(self) -> str:
        """The remedy for a shell that has not."""
        return f"./hvd activate {self.name}, and source activate.sh"

    def library(self, *names: str) -> List[str]:
        """The loaded libraries whose file names begin with one of ``names``."""
        return [path for path in self.loaded if path.rpartition("/")[2].startswith(names)]
