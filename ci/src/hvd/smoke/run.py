"""Run the smoke tests of a built Horovod."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
import re
import shutil
import subprocess
import types
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from hvd.core import process
from hvd.core.errors import CommandFailed, HvdError
from hvd.host import mpi
from hvd.model import check_build
from hvd.model.check_build import Expectation
from hvd.smoke import attribution, records
from hvd.smoke.launch import (
    CHECK_BUILD,
    OWN_GPU,
    Launcher,
    Target,
    find_program,
    launch,
    launchers,
)

#: The frameworks whose operations are run, and their names in the program.
FRAMEWORKS = {"pytorch": "torch", "tensorflow": "tensorflow", "mxnet": "mxnet"}
#: Print how many GPUs a framework sees.
_GPUS = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "tensorflow": "import tensorflow as tf; "
    "print(len(tf.config.experimental.list_physical_devices('GPU')))",
    "mxnet": "import mxnet; print(mxnet.context.num_gpus())",
}


@dataclasses.dataclass
class Check:
    """The findings of one check.

    Args:
        name: ``check-build``, or the words that a user would type to launch the ranks; followed
            by the framework if Horovod was built for several.
        seconds: wall time.
        failures: one text per failure, the cause first; none if the check passed.
        log: all output; None if nothing could be started.
        operations, bandwidth: as the functions of these names return them.
        details: for ``check-build`` the ``items``; for a launch the ``framework`` and the
            ``mpi_libraries`` that Horovod loaded; for both, what was ``left_out`` and why.
    """

    name: str
    seconds: float = 0.0
    failures: List[str] = dataclasses.field(default_factory=list)
    log: Optional[pathlib.Path] = None
    operations: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    bandwidth: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    details: Dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.failures

    def to_dict(self) -> Dict[str, Any]:
        """Return the check as it is in JSON."""
        log = None if self.log is None else str(self.log)
        return {**dataclasses.asdict(self), "passed": self.passed, "log": log}


def smoke_plan(
    target: Target,
    expectation: Expectation,
    out: pathlib.Path,
    *,
    ranks: int = 2,
    timeout: float = 120.0,
    mpi4py: bool = True,
    gpu: str = "",
) -> List[Tuple[str, Callable[[], Check]]]:
    """Return the checks of a built Horovod: their names and the functions that perform them.

    First what was built is compared with ``expectation``, then every launcher that it allows
    runs on ``ranks`` ranks, for one framework after the other.

    Args:
        out: directory for logs and records, one for each check in it.
        timeout: limit of each check, in seconds.
        mpi4py: with MPI as controller, check that mpi4py works beside Horovod.
        gpu: as for `launchers`, of the build.

    Raises:
        HvdError: there is nothing to run for any of the expected frameworks or controllers.
    """
    frameworks = _frameworks(expectation)
    if not frameworks or not launchers(expectation):
        raise HvdError(
            f"no smoke test for frameworks {sorted(expectation.frameworks)} with controllers"
            f" {sorted(expectation.controllers)}",
            f"expect one of {sorted(FRAMEWORKS)}, and of mpi and gloo",
        )
    gpus = {name: _gpus(target, name) if gpu else 0 for name in frameworks}
    left_out = _unable(target, expectation)
    for name in frameworks:
        if gpu and not gpus[name]:
            left_out[f"horovod.{name} on GPUs"] = "it sees no GPU on this machine"
    perform = functools.partial(check_build_items, target, expectation, out, timeout, left_out)
    plan: List[Tuple[str, Callable[[], Check]]] = [("check-build", perform)]
    several = len(frameworks) > 1
    for framework in frameworks:
        for launcher in launchers(expectation, gpu if gpus[framework] else ""):
            if launcher.name in left_out:
                continue
            on_gpu = launcher.device == "gpu"
            # its buffers are on the CPU
            by_mpi = mpi4py and launcher.controller == "mpi" and not on_gpu
            keras = framework == "tensorflow" and "keras" in expectation.extras
            options = ["--mpi4py"] * by_mpi + ["--keras"] * keras
            name = launcher.name + (f" ({framework})" if several else "")
            perform = functools.partial(
                run_launcher,
                *(launcher, target, out, *options),
                name=name,
                framework=framework,
                ranks=min(ranks, gpus[framework]) if on_gpu and gpu in OWN_GPU else ranks,
                timeout=timeout,
            )
            plan.append((name, perform))
    return plan


def _frameworks(expectation: Expectation) -> List[str]:
    return [FRAMEWORKS[name] for name in FRAMEWORKS if name in expectation.frameworks]


def check_build_items(
    target: Target,
    expectation: Expectation,
    out: pathlib.Path,
    timeout: float = 120.0,
    left_out: Mapping[str, str] = types.MappingProxyType({}),
) -> Check:
    """Compare ``horovodrun --check-build`` with ``expectation``, item by item.

    ``left_out`` has the checks that are not tried, and why.
    """
    check = Check("check-build")
    if left_out:
        check.details["left_out"] = [
            {"operation": name, "dtype": "every type", "reason": reason}
            for name, reason in left_out.items()
        ]
    try:
        horovodrun = find_program(target, "horovodrun")
        command = [target.python, CHECK_BUILD, horovodrun, *_frameworks(expectation)]
        check.log = out / "check-build" / "log.txt"
        completed = process.run(command, log=check.log, env=target.environment, timeout=timeout)
        check.seconds = completed.seconds
        report = check_build.parse(completed.output)
        check.failures = check_build.differences(report, expectation)
        check.details["items"] = check_build.table(report, expectation)
    except check_build.CheckBuildError as error:
        check.failures = [str(error)]
    except HvdError as error:
        check.failures = [error.message]
        check.seconds = error.seconds if isinstance(error, CommandFailed) else 0.0
    return check


def _unable(target: Target, expectation: Expectation) -> Dict[str, str]:
    """Return the launchers that cannot start ranks with the target's MPI, and why."""
    found = launchers(expectation)
    over_mpi = [each.name for each in found if each.cluster and each.controller == "mpi"]
    if not over_mpi:
        return {}
    try:
        kind = mpi.of_launcher(find_program(target, "mpirun"))
    except HvdError:
        return {}  # each of them reports it
    if kind is None or kind[0] == "openmpi":
        return {}
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/spark/mpi_run.py
    reason = f"Horovod gives mpirun options of Open MPI, and this one is of {kind[0]}"
    return dict.fromkeys(over_mpi, reason)


def _gpus(target: Target, framework: str) -> int:
    """Return how many GPUs a framework sees; 0 if it cannot say."""
    try:
        done = subprocess.run(
            [target.python, "-c", _GPUS[framework]],
            env=dict(target.environment),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return int(done.stdout.split()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return 0  # its import will show what is wrong with it


def run_launcher(
    launcher: Launcher,
    target: Target,
    out: pathlib.Path,
    *options: str,
    name: str = "",
    framework: str = "torch",
    ranks: int = 2,
    timeout: float = 120.0,
) -> Check:
    """Run the program on all ranks with one launcher; other arguments as for `smoke_plan`.

    Args:
        options: more of the program's, such as ``--quick``.
        name: of the check; that of the launcher by default.
        framework: by its name in the program.
    """
    check = Check(name or launcher.name, details={"framework": framework})
    directory = (out / re.sub(r"[^a-z0-9]+", "-", check.name.lower()).strip("-")).absolute()
    shutil.rmtree(directory, ignore_errors=True)  # with the records of an earlier run
    directory.mkdir(parents=True)
    words = ("--framework", framework, *options)
    try:
        over = launch(launcher, target, directory, *words, ranks=ranks, timeout=timeout)
    except HvdError as error:
        check.failures = [error.message]
        return check
    found = records.read(directory)
    check.log, check.seconds = over.log, over.seconds
    check.failures = attribution.failures(over, found)
    initialised = [rank for rank in found if rank.rank is not None]
    check.operations = operations(initialised)
    check.bandwidth = bandwidth(initialised)
    if initialised:
        check.details["mpi_libraries"] = initialised[0].mpi_libraries
        check.details["left_out"] = initialised[0].left_out
    return check


def operations(ranks: List[records.Rank]) -> List[Dict[str, Any]]:
    """Return one row per operation, in order; every rank runs the same ones.

    Returns:
        Dicts with ``operation`` (name), ``dtype``, ``elements`` (the most that a rank
        contributed), and by rank ``seconds`` (wall time) and ``ok``; both are None on a rank
        that did not end it.
    """
    rows = []
    for same in itertools.zip_longest(*(rank.operations for rank in ranks)):
        started = {str(rank.number): each for rank, each in zip(ranks, same) if each}
        sizes = [each.elements for each in started.values() if each.elements is not None]
        first = next(iter(started.values()))
        rows.append(
            {
                "operation": first.operation,
                "dtype": first.dtype,
                "elements": max(sizes, default=None),
                "seconds": {number: each.seconds for number, each in started.items()},
                "ok": {number: each.ok for number, each in started.items()},
            }
        )
    return rows


def bandwidth(ranks: List[records.Rank]) -> List[Dict[str, Any]]:
    """Return the bandwidth by method and message size, from the slowest rank's time.

    Returns:
        Dicts with ``method`` (``horovod``, ``mpi4py``), ``bytes`` of a message, ``seconds``, and
        ``algorithm_mb_s`` and ``bus_mb_s`` in 10**6 B/s as `program_bandwidth` defines them.
    """
    slowest: Dict[Tuple[str, int], float] = {}
    for rank in ranks:
        for row in rank.bandwidth:
            key = row["method"], row["bytes"]
            slowest[key] = max(slowest.get(key, 0.0), row["seconds"])
    n = len(ranks)
    return [
        {
            "method": method,
            "bytes": size,
            "seconds": seconds,
            "algorithm_mb_s": size / seconds / 1e6,
            "bus_mb_s": 2 * (n - 1) / n * size / seconds / 1e6,
        }
        for (method, size), seconds in slowest.items()
    ]
