"""Build Horovod for the GPUs of this machine, and run it on them."""

from __future__ import annotations

import functools
import itertools
import os
import pathlib
import shutil
from typing import Any, Callable, Dict, List, Tuple

from hvd.bench import collectives
from hvd.build import pipeline
from hvd.build.engine_pip import PipEngine
from hvd.build.pipeline import Options
from hvd.core import console, lock, paths, process, stamp
from hvd.core.deadline import OutOfTime, within
from hvd.core.errors import HvdError
from hvd.core.run import Run, StageFailed
from hvd.doctor import gather
from hvd.doctor.gather import Gpus
from hvd.gpu import report
from hvd.gpu.report import Findings
from hvd.host import framework
from hvd.model import environment
from hvd.model.built import Built, save
from hvd.model.environment import Environment
from hvd.report.text import plural
from hvd.smoke.launch import Launcher, Target, launchers
from hvd.smoke.run import Check, check_build_items, run_launcher

#: Name of its logs and of its virtual environment.
NAME = "gpu-check"
_SPEC = "py-horovod +mpi+gloo+nccl+cuda~rocm cuda_arch={} frameworks:=pytorch"
#: What is compiled for where there is no GPU: H100 and H200.
_ARCHITECTURE = "90"
#: Seconds that one launch may take.
_LAUNCH = 90.0
#: Those who take turns in the measurement of bandwidth, and how often they do.
_METHODS = {
    "horovod": "Horovod, NCCL",
    "released": "Horovod, NCCL, waits as released",
    "peer": "torch.distributed, NCCL",
}
_ROUNDS = 2
#: Of the benchmark's program.
_PARTS = ("allreduce", "collectives", "training")
#: Seconds for which each size is called.
_SIZE = 0.05


def run(options: Options, seconds: float, file: pathlib.Path) -> None:
    """Check the GPUs within ``seconds``, and write ``file`` whatever comes of it.

    Raises:
        StageFailed: a stage failed, or the time was up; the error was shown.
    """
    process.adopt_orphans()
    current = Run(NAME, "pip", options.verbose)
    found = Findings(current, gather.gpus(os.environ))
    try:
        with lock.exclusive(paths.state() / "lock"), within(seconds):
            _stages(found, options)
    except OutOfTime as reached:
        error = HvdError(f"{reached}; what was reached is in the report", "raise --limit")
        console.error(error)
        raise StageFailed(current.stages[-1].name, error) from reached
    finally:
        with current.stage("report"), current.step("report") as task:
            report.write(found, file)
            task.say(paths.shorten(file))


def _stages(found: Findings, options: Options) -> None:
    current = found.run
    with current.stage("setup"):
        with current.step("GPUs") as task:
            if found.gpus.names:
                task.say(report.gpus(found.gpus))
            else:
                task.skipped(f"{found.gpus.reason}; compiling for capability {_ARCHITECTURE}")
        with current.step("MPI, CMake and Python packages") as task:
            place = paths.state() / NAME
            python, added = framework.beside(_python(options.python), place, task.log)
            task.say(", ".join(added) or "all there")
        engine = PipEngine(_environment(found.gpus), python, options.jobs, options.fresh)
        known = engine.setup(current)
    with current.stage("concretize"):
        solution = found.solution = engine.concretize(current, known)
    with current.stage("build"):
        solution.build(current)
        with current.step("activation") as task:
            built, _ = solution.record(task)
            save(built)
            task.say(f"compute capability {', '.join(built.architectures)}")
    with current.stage("smoke"):
        with current.step("GPUs") as task:
            _require(found.gpus)
            task.say(report.gpus(found.gpus))
        _smoke(found, built)


def _python(named: str) -> str:
    """Return the interpreter with PyTorch: the one that is named, or ``python3`` on PATH.

    Raises:
        HvdError: there is none.
    """
    found = shutil.which(named or "python3")
    if not found:
        raise HvdError(
            f"{named or 'python3'} is not there", "name a Python with PyTorch for CUDA: --python"
        )
    return found


def _environment(gpus: Gpus) -> Environment:
    """Return the environment of Horovod for ``gpus``."""
    found = sorted({each.replace(".", "") for each in gpus.capabilities}) or [_ARCHITECTURE]
    base = environment.load(environment.DEFAULT)
    return environment.derive(base, _SPEC.format(",".join(found)))


def _require(gpus: Gpus) -> None:
    """Refuse to run without a GPU.

    Raises:
        HvdError: there is none.
    """
    if not gpus.names:
        raise HvdError(
            f"no GPU: {gpus.reason or 'the CUDA driver shows none'}",
            "what was built is in the report; for the rest run it where nvidia-smi lists a GPU: "
            "in a job that asks for one, or in a container with --nv or --gpus all",
        )


def _smoke(found: Findings, built: Built) -> None:
    """Run the operations over NCCL, and measure its bandwidth.

    Raises:
        HvdError: some of it failed; all of it was tried.
    """
    run, out = found.run, found.run.logs / "smoke" / "ranks"
    stamp.clear(out)
    failures = pipeline.perform(run, _plan(built, out, len(found.gpus.names)), found.checks)
    try:
        _bandwidth(found, built)
    except HvdError as error:
        failures.append(f"bandwidth: {error.message}")
    if failures:
        raise HvdError("\n  ".join(failures), "the report has the end of each log")


Plan = List[Tuple[str, Callable[[], Check]]]


def _plan(built: Built, out: pathlib.Path, gpus: int) -> Plan:
    """Return the checks: the build's, and each launcher with a rank on each GPU.

    With a single GPU, two ranks share it as well, since a single rank exchanges nothing.
    """
    target, expected = _target(built), built.expectation
    items = functools.partial(check_build_items, target, expected, out, _LAUNCH)
    plan: Plan = [("check-build", items)]
    for ranks, each in itertools.product((gpus,) if gpus > 1 else (1, 2), _on_gpu(built)):
        name = f"{each.name}, {plural(ranks, 'rank')}"
        options: Dict[str, Any] = {"name": name, "ranks": ranks, "timeout": _LAUNCH}
        plan.append((name, functools.partial(run_launcher, each, target, out, **options)))
    return plan


def _bandwidth(found: Findings, built: Built) -> None:
    """Time collectives of Horovod and of PyTorch in turn, one rank on each GPU.

    Raises:
        HvdError: one of them failed.
    """
    count = len(found.gpus.names)
    # torch.distributed learns the rank from horovodrun
    (launcher,) = (each for each in _on_gpu(built) if each.controller == "gloo")
    outs: Dict[str, List[pathlib.Path]] = {method: [] for method in _METHODS}
    for number in range(_ROUNDS):
        for method, label in _METHODS.items():
            out = found.run.logs / "collectives" / f"{method}-{number}"
            with found.run.step(f"times of {label}, {number + 1}") as task:
                words = (launcher, _target(built), out, count, task.log, method, _PARTS)
                collectives.launch(*words, seconds=_SIZE, timeout=_LAUNCH)
            outs[method].append(out)
    for method, directories in outs.items():
        found.rows += collectives.rows(_METHODS[method], directories, count)


def _on_gpu(built: Built) -> List[Launcher]:
    """Return the launchers whose ranks have tensors on GPUs."""
    return [each for each in launchers(built.expectation, built.case) if each.device == "gpu"]


def _target(built: Built) -> Target:
    variables = built.run_environment()
    return Target(pathlib.Path(shutil.which("python", path=variables["PATH"])), variables)
