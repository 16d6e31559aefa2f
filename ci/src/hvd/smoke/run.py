"""Run the smoke tests of a built Horovod."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import shutil
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from hvd.core import check, process
from hvd.core.check import State
from hvd.core.errors import HvdError
from hvd.host import mpi
from hvd.model import check_build
from hvd.model.check_build import PLUGINS, Expectation
from hvd.smoke import records
from hvd.smoke.launch import OWN_GPU, Launcher, Target, find_program, launch, launchers

#: Print how many GPUs a framework sees.
_GPUS = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "tensorflow": "import tensorflow as tf; "
    "print(len(tf.config.experimental.list_physical_devices('GPU')))",
    "mxnet": "import mxnet; print(mxnet.context.num_gpus())",
}


@dataclasses.dataclass
class Check(check.Check):
    """A check of the smoke test.

    Args:
        name: ``check-build``, or the words that a user would type to launch the ranks; followed
            by the framework if Horovod was built for several.
        log: all output; None if nothing could be started.
        operations, bandwidth: as the functions of these names return them.
        left_out: dicts with the ``operation`` that is not checked, and the ``reason``.
        mpi_libraries: paths of those that Horovod loaded.
    """

    seconds: float = 0.0
    log: Optional[pathlib.Path] = None
    operations: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    bandwidth: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    left_out: List[Dict[str, str]] = dataclasses.field(default_factory=list)
    mpi_libraries: List[str] = dataclasses.field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.state is State.ok

    @property
    def failures(self) -> List[str]:
        """One line per failure, the cause first; none if the check passed."""
        return self.detail.splitlines() if self.state is State.fail else []

    def fail(self, *failures: str) -> None:
        """Record ``failures``, if there are any."""
        if failures:
            self.state = State.fail
            self.detail = "\n".join(" ".join(each.split()) for each in failures)

    def to_dict(self) -> Dict[str, Any]:
        """Return the check as it is in JSON."""
        log = None if self.log is None else str(self.log)
        more = {"log": log, "passed": self.passed, "failures": self.failures}
        return {**dataclasses.asdict(self), **more}


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

    What was built is compared with ``expectation``, then every launcher that it allows starts
    ``ranks`` ranks, for one framework after the other.

    Args:
        out: directory for logs and records, one for each check in it.
        timeout: limit of each check, in seconds.
        mpi4py: with MPI as controller, check that mpi4py works beside Horovod.
        gpu: as for `launchers`, of the build.
    """
    frameworks = [PLUGINS[name] for name in PLUGINS if name in expectation.frameworks]
    if not frameworks or not launchers(expectation):
        raise HvdError(
            f"no smoke test for frameworks {sorted(expectation.frameworks)} with controllers"
            f" {sorted(expectation.controllers)}",
            f"expect one of {sorted(PLUGINS)}, and of mpi and gloo",
        )
    left_out = _unable(target, expectation)
    plan: List[Tuple[str, Callable[[], Check]]] = []
    for framework in frameworks:
        count = _gpus(target, framework) if gpu else 0
        if gpu and not count:
            left_out[f"horovod.{framework} on GPUs"] = "it sees no GPU on this machine"
        for launcher in launchers(expectation, gpu if count else ""):
            if launcher.name in left_out:
                continue
            on_gpu = launcher.device == "gpu"
            # mpi4py's buffers are on the CPU
            options = ["--mpi4py"] * (mpi4py and launcher.controller == "mpi" and not on_gpu)
            options += ["--keras"] * (framework == "tensorflow" and "keras" in expectation.extras)
            name = launcher.name + (f" ({framework})" if len(frameworks) > 1 else "")
            perform = functools.partial(
                run_launcher,
                *(launcher, target, out, *options),
                name=name,
                framework=framework,
                ranks=min(ranks, count) if on_gpu and gpu in OWN_GPU else ranks,
                timeout=timeout,
            )
            plan.append((name, perform))
    first = functools.partial(check_build_items, target, expectation, out, timeout, left_out)
    return [("check-build", first), *plan]


def check_build_items(
    target: Target,
    expectation: Expectation,
    out: pathlib.Path,
    timeout: float = 120.0,
    left_out: Optional[Mapping[str, str]] = None,
) -> Check:
    """Compare ``horovodrun --check-build`` with ``expectation``.

    ``left_out`` has the checks that are not tried, and why.
    """
    found = Check("check-build", log=out / "check-build" / "log.txt")
    found.left_out = [{"operation": k, "reason": v} for k, v in (left_out or {}).items()]
    # https://github.com/horovod/horovod/pull/3272: before 0.25, it ends by os._exit(), which
    # loses what is not flushed
    env = {**target.environment, "PYTHONUNBUFFERED": "1"}
    try:
        command = [find_program(target, "horovodrun"), "--check-build", "--verbose"]
        completed = process.run(command, log=found.log, env=env, timeout=timeout)
        found.seconds = completed.seconds
        found.fail(*check_build.differences(completed.output, expectation))
    except HvdError as error:
        found.fail(error.message)
    return found


def _unable(target: Target, expectation: Expectation) -> Dict[str, str]:
    """Return the launchers that cannot start ranks with the target's MPI, and why."""
    over_mpi = [
        each.name for each in launchers(expectation) if each.cluster and each.controller == "mpi"
    ]
    mpirun = shutil.which("mpirun", path=target.environment.get("PATH", ""))
    kind = mpi.of_launcher(mpirun) if over_mpi and mpirun else None
    if kind is None or kind[0] == "openmpi":
        return {}
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/spark/mpi_run.py
    reason = f"Horovod gives mpirun options of Open MPI, and this one is of {kind[0]}"
    return dict.fromkeys(over_mpi, reason)


def _gpus(target: Target, framework: str) -> int:
    """Return how many GPUs a framework sees; 0 if it cannot say, as its import will show."""
    said = process.output(
        target.python, "-c", _GPUS[framework], env=target.environment, timeout=120
    )
    last = said.split()[-1:]
    return int(last[0]) if last and last[0].isdigit() else 0


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
    found = Check(name or launcher.name)
    directory = (out / re.sub(r"[^a-z0-9]+", "-", found.name.lower()).strip("-")).absolute()
    shutil.rmtree(directory, ignore_errors=True)  # with the records of an earlier run
    directory.mkdir(parents=True)
    words = ("--framework", framework, *options)
    try:
        over = launch(launcher, target, directory, *words, ranks=ranks, timeout=timeout)
    except HvdError as error:
        found.fail(error.message)
        return found
    known = records.read(directory)
    found.log, found.seconds = over.log, over.seconds
    found.fail(*records.failures(over, known))
    initialised = [rank for rank in known if rank.rank is not None]
    found.operations = operations(initialised)
    found.bandwidth = bandwidth(initialised)
    for rank in initialised[:1]:
        found.mpi_libraries, found.left_out = rank.mpi_libraries, rank.left_out
    return found


def operations(ranks: List[records.Rank]) -> List[Dict[str, Any]]:
    """Return one row per operation, in order; every rank runs the same ones.

    Each has ``operation``, ``dtype`` and ``elements`` of the first rank, and by rank ``seconds``
    (wall time) and ``ok``; both are None on a rank that did not end it.
    """
    rows: List[Dict[str, Any]] = []
    for rank in ranks:
        for place, each in enumerate(rank.operations):
            if place == len(rows):
                named = {key: getattr(each, key) for key in ("operation", "dtype", "elements")}
                rows.append({**named, "seconds": {}, "ok": {}})
            rows[place]["seconds"][str(rank.number)] = each.seconds
            rows[place]["ok"][str(rank.number)] = each.ok
    return rows


def bandwidth(ranks: List[records.Rank]) -> List[Dict[str, Any]]:
    """Return the bandwidth by method and message size, from the slowest rank's time.

    With S the bytes that each rank contributes, n the ranks and t the seconds of one allreduce,
    the algorithm bandwidth is S / t, and the bus bandwidth 2 (n - 1) / n * S / t: what each rank
    has to send, and to receive, in the best possible algorithm, to compare with the link's
    (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).

    Returns:
        Dicts with ``method`` (``horovod``, ``mpi4py``), ``bytes`` of a message, ``seconds``, and
        ``algorithm_mb_s`` and ``bus_mb_s`` in 10**6 B/s.
    """
    slowest: Dict[Tuple[str, int], float] = {}
    for row in (row for rank in ranks for row in rank.bandwidth):
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
