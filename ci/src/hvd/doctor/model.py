"""The facts that the checks read, and their findings."""

from __future__ import annotations

import dataclasses
import enum
from typing import Dict, FrozenSet, List, Mapping, Optional, Tuple

from hvd.deliver.activation import MARK
from hvd.model.built import Built

#: File names of the MPI libraries that Horovod can be linked with begin so.
MPI_LIBRARIES = ("libmpi.so", "libmpi_ibm.so", "libmpich", "libmpi_cray", "libmpi_gnu")


class State(str, enum.Enum):
    """How a check ended; what cannot be looked at is not known, which is not ok."""

    ok = "ok"
    warn = "warn"
    fail = "fail"
    unknown = "not known"


@dataclasses.dataclass(frozen=True)
class Finding:
    """The finding of a check."""

    check: str
    state: State
    finding: str  #: a sentence without a full stop
    remedy: str = ""  #: if it is not ok


@dataclasses.dataclass(frozen=True)
class Launcher:
    """An ``mpirun``."""

    path: str
    real: str  #: where links to it end
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


@dataclasses.dataclass(frozen=True)
class Facts:
    """Everything that the checks look at; "the shell" is that in which ./hvd doctor was called."""

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
    #: Horovod's libraries, each with the names of libraries and of symbols that it needs
    extensions: Mapping[str, FrozenSet[str]] = dataclasses.field(default_factory=dict)
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
        marks: Dict[str, str] = {MARK: self.built.name} if self.built else {}
        for name in ("SPACK_ENV", "VIRTUAL_ENV"):
            if self.built and name in self.built.variables:
                marks[name] = self.built.variables[name]
        return any(self.shell.get(name) == value for name, value in marks.items())

    def library(self, *names: str) -> List[str]:
        """The loaded libraries whose file names begin with one of ``names``."""
        return [path for path in self.loaded if path.rpartition("/")[2].startswith(names)]
