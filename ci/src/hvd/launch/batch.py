"""Batch scripts, and the commands that ask for nodes."""

from __future__ import annotations

import pathlib
import shlex
from typing import List, Mapping, Optional

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.launch import methods
from hvd.launch.request import HOSTS, JOB, Request, options
from hvd.launch.values import fill, of_job
from hvd.model import built, environment

#: A job that waits for a rank that hangs ends after half an hour, as PyTorch's over Gloo does.
#: Without it, Horovod warns and waits until the allocation ends:
#: https://horovod.readthedocs.io/en/stable/timeline.html and
#: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
STALLED = (
    "export HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=${HOROVOD_STALL_SHUTDOWN_TIME_SECONDS:-1800}"
    "  # a rank that hangs ends the job; 0: never"
)


def script(request: Request) -> str:
    """Return the whole batch script."""
    scheduler = request.scheduler
    if not scheduler.directive:
        raise HvdError(
            f"{request.site.name} has no scheduler that takes a batch script",
            "leave --batch out; --run starts the program",
        )
    activate = _activate_script(request)
    exported = site_exports(request)
    prepared = [f". {shlex.quote(str(activate))}"] if activate else _preparation(request)
    parts = [
        [scheduler.shell, *(f"{scheduler.directive} {each}" for each in _options(request))],
        [scheduler.enter],
        # activate.sh was written for some number of nodes; the exports are for this one
        *([prepared, exported] if activate else [exported, prepared]),
        [] if request.torch else [STALLED],
        [_launch(request)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if any(part)) + "\n"


def srun_allocate(request: Request) -> str:
    """Return an srun that gets nodes and runs the program on them."""
    if request.method != "srun" or request.torch:
        reason = "--torch needs the host of rank 0, which is known inside a job only"
        raise HvdError(
            f"--ask: {reason if request.torch else f'{request.method} cannot ask for nodes'}",
            "use --batch, or --allocate first",
        )
    bind = request.partition.slurm.cpu_bind
    more = [*_options(request), *([f"--cpu-bind={bind}"] if bind else [])]
    # what srun gets in a batch script too
    line = f" {' '.join(methods.words(request, script=True))} "
    more = [each for each in more if f" {each} " not in line]
    return methods.quoted(request, script=True, options=" ".join(more).split())


def allocation(request: Request) -> str:
    """Return the command that gets nodes to type commands on."""
    if request.site.interactive is None:
        raise HvdError(
            f"interactive jobs are not configured for {request.site.name}", "use --batch"
        )
    command = request.site.interactive.command
    return shlex.join([command, *" ".join(_options(request, command)).split()])


def _options(request: Request, command: str = "") -> List[str]:
    """Return the options of a batch script, or of an interactive ``command``."""
    scheduler, site = request.scheduler, request.site
    if site.scheduler in ("lsf", "pbs") and getattr(request.partition, site.scheduler) is None:
        raise HvdError(
            f"{site.name}: partition {request.partition.name} has no {scheduler.title} queue",
            f"add '{site.scheduler}' to it in site.yaml",
        )
    template = scheduler.interactive[command] if command else scheduler.batch
    return [" ".join(entry) for entry in fill(template, of_job(request))]


def site_exports(request: Request) -> List[str]:
    """Return a line of shell for each variable that the launcher and the network need."""
    bind = request.partition.slurm.cpu_bind
    values = {"SLURM_CPU_BIND": bind} if bind else {}
    lines = exports({**methods.variables(request), **values, **request.fabric})
    if request.torch:
        lines.append(f"export MASTER_ADDR={methods.first_host(request)}")
    return lines


def exports(values: Mapping[str, str]) -> List[str]:
    """Return a line of shell for each variable."""
    return [f"export {name}={shlex.quote(value)}" for name, value in values.items()]


def _activate_script(request: Request) -> Optional[pathlib.Path]:
    """The script of ``./hvd activate``, which loads modules too; None if it is not wanted."""
    if request.image or request.setup or request.modules:
        return None
    places = [built.activation(request.environment, engine) for engine in built.ENGINES]
    scripts = [place / "activate.sh" for place in places]
    return next((each for each in scripts if each.is_file()), None)


def _preparation(request: Request) -> List[str]:
    """Load modules, then activate the environment; a container has its own."""
    if request.image:
        return list(request.setup)
    loads = request.modules or tuple(" ".join(load) for load in request.use.run)
    lines = [f"module load {load}" for load in loads]
    if request.setup:
        return [*lines, *request.setup]
    name = request.environment
    if built.file(name, "pip").is_file() and not built.file(name, "spack").is_file():
        raise HvdError(
            f"{name} was built by pip, and Spack cannot activate it",
            f"./hvd activate {name} first, which writes what the script then sources",
        )
    setup = shlex.quote(str(paths.state() / "setup-env.sh"))
    return [*lines, f". {setup}", environment.activation(name)]


def _launch(request: Request) -> str:
    if request.hosts or not HOSTS - {"slots"} & request.settings.values:
        return methods.quoted(request, script=True)
    # the hosts are known in the job alone, so that ./hvd launch is called there
    words = [str(paths.ROOT / "hvd"), "launch", request.environment]
    words += ["--partition", request.partition.name]
    for field in options():
        value = getattr(request, field.name)
        if value and field.metadata["panel"] != JOB:
            name = field.metadata["usage"].split()[0]
            each = [f"{key}={text}" for key, text in value.items()] if name == "--env" else [value]
            words += [
                word for text in each for word in ([name] if value is True else [name, str(text)])
            ]
    return f"{shlex.join([*words, '--run', '--'])} {methods.program(request)}"
