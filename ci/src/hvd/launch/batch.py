"""Batch scripts, and the commands that ask for nodes."""

from __future__ import annotations

import pathlib
import shlex
from typing import List, Mapping, Optional

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.launch import methods, schedulers
from hvd.launch.request import Request
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
    """Return the whole batch script.

    Raises:
        HvdError: the site has no scheduler, or the launch is impossible.
    """
    scheduler = schedulers.of(request.site)
    if not scheduler.directive:
        raise HvdError(
            f"{request.site.name} has no scheduler that takes a batch script",
            "leave --batch out; --run starts the program",
        )
    head = [f"{scheduler.directive} {option}" for option in scheduler.options(request)]
    exported, prepared = site_exports(request), _preparation(request)
    # activate.sh was written for some number of nodes; the exports are for this one
    middle = [prepared, exported] if _activation(request) else [exported, prepared]
    enter = [scheduler.enter] if scheduler.enter else []
    stalled = [] if request.torch else [STALLED]
    parts = [[scheduler.shell, *head], enter, *middle, stalled, [_launch(request)]]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def asking(request: Request) -> str:
    """Return an srun that gets nodes and runs the program on them.

    Raises:
        HvdError: the launch method is not srun.
    """
    if request.method != "srun":
        raise HvdError(
            f"--ask: {request.method} cannot ask for nodes", "use --batch, or --allocate first"
        )
    if request.torch:
        raise HvdError(
            "--ask: --torch needs the host of rank 0, which is known inside a job only",
            "use --batch, or --allocate first",
        )
    options = schedulers.of(request.site).options(request)
    options += schedulers.fill(["--cpu-bind={cpu_bind}"], vars(request.partition.slurm))
    return methods.quoted(request, script=True, options=" ".join(options).split())


def allocation(request: Request) -> str:
    """Return the command that gets nodes to type commands on.

    Raises:
        HvdError: the site's documents have none.
    """
    interactive = request.site.interactive
    if interactive is None:
        raise HvdError(
            f"{request.site.name}: no command is known that asks for nodes to type on",
            "use --batch",
        )
    options = schedulers.of(request.site).options(request, interactive.command)
    return shlex.join([interactive.command, *" ".join(options).split()])


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


def _preparation(request: Request) -> List[str]:
    """Load modules, then activate the environment; a container has its own."""
    if request.image:
        return list(request.setup)
    ready = _activation(request)
    if ready:
        return [f". {shlex.quote(str(ready))}"]
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


def _activation(request: Request) -> Optional[pathlib.Path]:
    """The script of ``./hvd activate``, which loads modules too; None if it is not wanted."""
    if request.image or request.setup or request.modules:
        return None
    places = [built.activation(request.environment, engine) for engine in built.ENGINES]
    scripts = [place / "activate.sh" for place in places]
    return next((each for each in scripts if each.is_file()), None)


def _launch(request: Request) -> str:
    method = methods.choose(request)
    if not method.needs_hosts or request.hosts:
        return methods.quoted(request, script=True)
    # the hosts are known in the job alone, so that ./hvd launch is called there
    flags = [f"--{name}" for name in ("gloo", "torch") if getattr(request, name)]
    options = schedulers.fill(
        [
            *("--via {method}", "--nodes {nodes}", "--ranks-per-node {ranks_per_node}"),
            *("--partition {name}", "{flags}", "--rankfile {rankfile}"),
            *("--racks {racks}", "--aisles {aisles}"),
        ],
        {**vars(request), "name": request.partition.name, "flags": flags},
    )
    words = [str(paths.ROOT / "hvd"), "launch", request.environment, *" ".join(options).split()]
    for name, value in request.variables.items():
        words += ["--env", f"{name}={value}"]
    return f"{shlex.join([*words, '--run', '--'])} {methods.program(request)}"
