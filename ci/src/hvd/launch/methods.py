"""The command line of a launch, from the site's template."""

from __future__ import annotations

import pathlib
import re
import shlex
from typing import Dict, List, Sequence

from hvd.core.errors import HvdError
from hvd.launch.request import HOSTS, Request
from hvd.launch.values import fill, of_launch

#: Sets torch.distributed's variables on one rank, and becomes the program.
TORCH_RANK = pathlib.Path(__file__).resolve().with_name("torch-rank")
#: Gives one rank its GPU, and becomes the program.
GPU_RANK = TORCH_RANK.with_name("gpu-rank")


def words(request: Request, script: bool = False) -> List[str]:
    """Return the words up to the program, for here and now or for a batch script."""
    method = request.settings
    taken = method.values & HOSTS
    several = request.nodes > 1 or "hosts" in method.needs
    # mpirun gets the hosts of a job from its scheduler
    in_job = request.site.scheduler != "none" and taken == {"slots"}
    if taken and several and not (script or in_job or request.hosts or request.job):
        raise HvdError(
            f"{request.method} needs to know the {request.nodes} hosts",
            "name them, for example --hosts 'server[1-4]', or start it inside a job",
        )
    template = method.script if script and method.script else method.line
    found = [word for entry in fill(template, of_launch(request, script)) for word in entry]
    gpu = request.partition.rank_gpu
    if gpu and request.use.operations != "cpu":
        found += [str(GPU_RANK), gpu.variable, gpu.local_rank, ",".join(map(str, gpu.order))]
    return found + [str(TORCH_RANK)] * request.torch


def variables(request: Request) -> Dict[str, str]:
    """Return the variables that the launcher needs."""
    values = of_launch(request, True)
    filled = {name: fill([text], values) for name, text in request.settings.variables.items()}
    return {name: " ".join(entry) for name, entries in filled.items() for entry in entries}


def prefix(request: Request) -> Dict[str, str]:
    """Return the user's variables that go in front of the command line."""
    return {} if "forwarded" in request.settings.values else dict(request.variables)


def quoted(request: Request, script: bool = False, options: Sequence[str] = ()) -> str:
    """Return the command line for a shell, with the user's variables in front of it.

    Args:
        script: it is for a batch script.
        options: go before the launcher's own.
    """
    launcher, *more = words(request, script)
    text = [f"{name}={shlex.quote(value)}" for name, value in prefix(request).items()]
    if request.torch and not script:
        text = [f"MASTER_ADDR={first_host(request)}", *text]
    return " ".join([*text, shlex.join([launcher, *options, *more]), program(request)])


def program(request: Request) -> str:
    """Return the program's words for a shell; $NAME is quoted unless it is to be expanded."""
    return " ".join(
        '"' + re.sub(r'(["`\\])', r"\\\1", word) + '"'
        if request.expand and "$" in word
        else shlex.quote(word)
        for word in request.program
    )


def first_host(request: Request) -> str:
    """Return shell for the host of rank 0, where the ranks of torch.distributed meet."""
    known = request.hosts or request.job
    if known:
        return shlex.quote(known[0])
    lsf = request.partition.lsf
    line = 2 if lsf and lsf.launch_slots else 1
    return request.scheduler.first_host.replace("{first_compute_host}", str(line))
