"""How ranks are started: by ``mpirun``, by ``horovodrun`` over MPI or Gloo, by Spark, by Ray."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
from typing import Dict, List, Mapping, Optional, Tuple

from hvd.core import process
from hvd.core.errors import CommandFailed, HvdError
from hvd.model.check_build import Expectation

PROGRAM = pathlib.Path(__file__).resolve().with_name("program.py")
CLUSTER = PROGRAM.with_name("program_cluster.py")
#: Seconds that `PROGRAM` has, beyond its limit, to end; what is left then is killed.
_GRACE = 20


@dataclasses.dataclass(frozen=True)
class Target:
    """A built Horovod: the Python that can import it, and the environment of its programs."""

    python: pathlib.Path
    environment: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Launcher:
    """One way to start ranks."""

    name: str  #: the words that a user would type
    program: str  #: on the target's ``PATH``; empty if its Python starts them
    options: Tuple[str, ...]  #: of the program; ``{ranks}`` stands for the number of ranks
    controller: str  #: Horovod's, ``mpi`` or ``gloo``
    operations: str = ""  #: what carries operations on CPUs; the controller if empty
    device: str = "cpu"  #: where the tensors are, ``cpu`` or ``gpu``
    cluster: str = ""  #: whose workers the ranks are, ``spark`` or ``ray``, if any

    def command(self, executable: str, ranks: int) -> List[str]:
        """Return the command line up to the program that the ranks run."""
        return [executable, *(option.format(ranks=ranks) for option in self.options)]


_NP = ("-np", "{ranks}")
_HOSTS = (*_NP, "-H", "localhost:{ranks}")
LAUNCHERS = (
    Launcher("mpirun", "mpirun", _NP, "mpi"),
    Launcher("horovodrun --mpi", "horovodrun", ("--mpi", *_HOSTS), "mpi"),
    Launcher("horovodrun --gloo", "horovodrun", ("--gloo", *_HOSTS), "gloo"),
    Launcher("mpirun, oneCCL", "mpirun", _NP, "mpi", operations="ccl"),
    Launcher("mpirun, GPU", "mpirun", _NP, "mpi", device="gpu"),
    Launcher("horovodrun --gloo, GPU", "horovodrun", ("--gloo", *_HOSTS), "gloo", device="gpu"),
    Launcher("horovod.spark.run, Gloo", "", (), "gloo", cluster="spark"),
    Launcher("horovod.spark.run, MPI", "", (), "mpi", cluster="spark"),
    Launcher("RayExecutor", "", (), "gloo", cluster="ray"),
)
#: What carries operations on GPUs and gives each rank one of its own.
OWN_GPU = ("nccl", "rccl", "ddl")


def launchers(expectation: Expectation, gpu: str = "") -> List[Launcher]:
    """Return the launchers whose controller and operations the build has.

    ``gpu`` carries the operations on GPUs, as ``Built.case`` has it; empty without a GPU.
    """
    return [
        each
        for each in LAUNCHERS
        if each.controller in expectation.controllers
        and each.operations in ("", *expectation.operations)
        and each.cluster in ("", *expectation.extras)
        # MPI and DDL have no part in a job over Gloo
        and (each.device == "cpu" or gpu in ("nccl", "rccl") or (gpu and each.controller == "mpi"))
    ]


def find_program(target: Target, name: str) -> str:
    """Return the absolute path of ``name`` on the target's ``PATH``; an error if it is missing."""
    path = target.environment.get("PATH", "")
    found = shutil.which(name, path=path)
    if not found:
        raise HvdError(
            f"{name} is not on the PATH of the Horovod under test: {path}",
            "load the package that provides it",
        )
    return os.path.abspath(found)


@dataclasses.dataclass(frozen=True)
class Launch:
    """A launch that is over."""

    launcher: Launcher
    executable: str  #: path of the launcher
    mpirun: Optional[str]  #: path of the ``mpirun`` that the launcher is or calls, if any
    ranks: int  #: how many were asked for
    status: Optional[int]  #: of the launcher; negative for a signal, None for a time-out
    seconds: float
    log: pathlib.Path

    @property
    def timed_out(self) -> bool:
        return self.status is None


def launch(
    launcher: Launcher,
    target: Target,
    out: pathlib.Path,
    *options: str,
    ranks: int,
    timeout: float,
) -> Launch:
    """Run `PROGRAM` with ``options`` on ``ranks`` ranks; the directory ``out`` is empty.

    Ranks that outlast ``timeout`` seconds say where they are and end.
    """
    process.adopt_orphans()
    mpirun = find_program(target, "mpirun") if launcher.controller == "mpi" else None
    if launcher.cluster == "spark" and not target.environment.get("JAVA_HOME"):
        find_program(target, "java")
    executable = str(target.python)
    words = [executable, CLUSTER, launcher.cluster]
    if launcher.program:
        executable = find_program(target, launcher.program)
        words = [*launcher.command(executable, ranks), target.python, PROGRAM]
    words += ["--controller", launcher.controller, "--device", launcher.device]
    words += ["--ranks", ranks, "--out", out, "--limit", max(1, int(timeout)), *options]
    log = out / "log.txt"
    env = environment(launcher, target, timeout)
    try:
        over = process.run(words, log=log, cwd=out, env=env, timeout=timeout + _GRACE, check=False)
    except CommandFailed as failure:
        over = failure
    return Launch(launcher, executable, mpirun, ranks, over.status, over.seconds, log)


def environment(launcher: Launcher, target: Target, timeout: float) -> Dict[str, str]:
    """Return the target's environment, with what the launcher needs beside it."""
    settings = horovod_settings(launcher.controller, launcher.operations, timeout)
    if launcher.cluster:
        # its workers import `PROGRAM`
        places = (str(PROGRAM.parent), target.environment.get("PYTHONPATH", ""))
        settings["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        settings["RAY_USAGE_STATS_ENABLED"] = "0"
    return {**target.environment, **settings, **small_machine(target.environment.get("PATH"))}


def horovod_settings(controller: str, operations: str, timeout: float) -> Dict[str, str]:
    """Return the variables that `PROGRAM` needs on any machine.

    They choose controller and operations, the controller's if empty, in place of the surroundings.
    Horovod warns of ranks that keep others waiting after a quarter of ``timeout`` seconds.
    """
    return {
        "HOROVOD_CONTROLLER": controller,
        "HOROVOD_CPU_OPERATIONS": operations or controller,
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(max(1, int(timeout / 4))),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def small_machine(path: Optional[str] = None) -> Dict[str, str]:
    """Return the variables that MPI needs with few cores, as root, and without ssh on ``path``."""
    settings = {
        # a test machine may have fewer cores than ranks: Open MPI 4, and 5
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        # each rank has two threads that poll; on few cores they would keep the others out:
        # Open MPI, and Intel MPI by its Developer Reference for Linux
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "I_MPI_WAIT_MODE": "1",
    }
    if os.geteuid() == 0:  # a container
        settings.update(
            (f"{prefix}_ALLOW_RUN_AS_ROOT{suffix}", "1")
            for prefix in ("OMPI", "PRTE")
            for suffix in ("", "_CONFIRM")
        )
    if not (shutil.which("ssh", path=path) or shutil.which("rsh", path=path)):
        # Open MPI 4 stops without one, though it starts nothing elsewhere:
        # https://github.com/open-mpi/ompi/blob/v4.1.8/orte/mca/plm/rsh/plm_rsh_component.c
        settings["OMPI_MCA_plm_rsh_agent"] = shutil.which("false") or "/bin/false"
    return settings
