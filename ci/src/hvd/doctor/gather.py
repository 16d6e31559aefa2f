"""Facts of this machine and of the environment that several checks need."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import shutil
from typing import Any, Dict, List, Mapping, Tuple

from hvd.core import process
from hvd.deliver import activation
from hvd.doctor import imports
from hvd.host import mpi
from hvd.model.built import Built
from hvd.model.check_build import PLUGINS
from hvd.smoke.program import MPI_LIBRARIES

#: Seconds for what imports a framework.
TIMEOUT = 300


@dataclasses.dataclass(frozen=True)
class Gpus:
    """The answers of the NVIDIA driver."""

    driver: Tuple[int, ...] = ()  #: the latest CUDA that it supports, as (12, 4)
    reason: str = ""  #: why there is no driver or no GPU
    capabilities: Tuple[str, ...] = ()  #: of each GPU, as "8.0"
    names: Tuple[str, ...] = ()  #: of each GPU, as "NVIDIA H200"


def gpus(shell: Mapping[str, str]) -> Gpus:
    """Return the answers of the NVIDIA driver to a process with the variables of ``shell``."""
    version = re.search(r"CUDA Version: *(\d+)\.(\d+)", process.output("nvidia-smi", env=shell))
    if not version:
        return Gpus(reason="nvidia-smi shows no GPU")
    query = ("--query-gpu=compute_cap,name", "--format=csv,noheader")
    lines = process.output("nvidia-smi", *query, env=shell).splitlines()
    rows = [line.split(", ", 1) for line in lines]
    capabilities, names = zip(*rows) if rows else ((), ())
    return Gpus((int(version[1]), int(version[2])), "", capabilities, names)


class Subject:
    """A built environment, and the shell in which ./hvd doctor was called."""

    def __init__(self, built: Built, shell: Mapping[str, str]) -> None:
        self.built, self.shell = built, shell
        plan = activation.plan(built)
        #: the shell after activation, without and with its own LD_LIBRARY_PATH
        self.own = plan.applied({k: v for k, v in shell.items() if k != "LD_LIBRARY_PATH"})
        self.after = plan.applied(shell)
        self.python = shutil.which("python", path=self.own["PATH"]) or "python"

    @property
    def active(self) -> bool:
        """True if the shell has activated the environment, by whichever means."""
        own = {**self.built.variables, activation.MARK: self.built.name}
        marks = (activation.MARK, "SPACK_ENV", "VIRTUAL_ENV")
        return any(name in own and self.shell.get(name) == own[name] for name in marks)

    @functools.cached_property
    def imported(self) -> Dict[str, Any]:
        """Errors, libraries and MPI of a process that imports Horovod; see ``imports.py``."""
        frameworks = sorted(self.built.expectation.frameworks)
        names = [f"horovod.{PLUGINS[name]}" for name in frameworks]
        command = [self.python, imports.__file__, *names]
        said = process.output(*command, env=self.after, timeout=TIMEOUT)
        if not said:
            error = f"a Python that imports it crashes: {' '.join(command)}"
            return {"errors": {"horovod": error}, "loaded": [], "mpi": ""}
        return json.loads(said.splitlines()[-1])

    def library(self, *names: str) -> List[str]:
        """The loaded libraries whose file names begin with one of ``names``, links resolved."""
        loaded = [p for p in self.imported["loaded"] if os.path.basename(p).startswith(names)]
        return sorted({os.path.realpath(path) for path in loaded})

    @functools.cached_property
    def mpi(self) -> Tuple[str, str]:
        """The MPI that Horovod has loaded, such as "openmpi 4.1.8", and its path."""
        known = " ".join(mpi.of_library(self.imported["mpi"]) or ())
        return known, (self.library(*MPI_LIBRARIES) or [""])[0]

    def launcher(self, variables: Mapping[str, str]) -> Tuple[str, str]:
        """Path and MPI of the ``mpirun`` on a PATH; empty if there is none, or it does not say."""
        path = shutil.which("mpirun", path=variables.get("PATH", os.defpath)) or ""
        return path, " ".join(mpi.of_launcher(path) or ()) if path else ""

    @functools.cached_property
    def gpus(self) -> Gpus:
        return gpus(self.shell)

    @functools.cached_property
    def shadowed(self) -> Dict[str, Tuple[str, str]]:
        """Libraries that the shell's LD_LIBRARY_PATH changes: the place without and with it.

        This asks the loader itself, by ldd, which is for files that are trusted to run.
        """
        files = [path for path in self.imported["loaded"] if "/horovod/" in path]
        files += [*self.library(*MPI_LIBRARIES), self.python, self.launcher(self.own)[0]]
        places: List[Dict[str, str]] = [{}, {}]
        for found, variables in zip(places, (self.own, self.after)):
            for file in filter(None, files):
                said = process.output("ldd", file, env=variables)
                for name, path in re.findall(r"^\s*(\S+) => (/\S+)", said, re.MULTILINE):
                    found.setdefault(name, path)
        before, after = places
        return {
            name: (before[name], after[name])
            for name in sorted(set(before) & set(after))
            if before[name] != after[name]
        }
