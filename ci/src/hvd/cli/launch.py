"""``./hvd launch``."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from typing import Dict, List, Optional

import typer

from hvd.cli.common import option
from hvd.core import console
from hvd.core.errors import HvdError
from hvd.launch import batch, methods, request, schedulers, start
from hvd.launch.request import Request

_shape = functools.partial(option, rich_help_panel="Ranks and nodes")
_how = functools.partial(option, rich_help_panel="Launcher")
_printed = functools.partial(option, rich_help_panel="Output")
_job = functools.partial(option, rich_help_panel="Job")
_number = functools.partial(_shape, default=None, min=1)


def launch(
    name: str = typer.Argument(..., metavar="ENV", help="Environment; see environments/sites."),
    words: Optional[List[str]] = typer.Argument(None, metavar="PROGRAM", help="Program."),
    nodes: Optional[int] = _number(
        "--nodes N", "Number of nodes. \\[default: 1, or those of --hosts]"
    ),
    ranks_per_node: Optional[int] = _number(
        "--ranks-per-node R", "Ranks per node. \\[default: one per GPU]"
    ),
    hosts_list: str = _shape("--hosts LIST", "Hosts, for example 'server[1-4]'."),
    partition: str = _shape("--partition NAME", "Another of the site's partitions."),
    racks: Optional[int] = _number("--racks N", "Reserve this many whole racks (LSF)."),
    aisles: Optional[int] = _number("--aisles N", "Number of aisles (ddlrun)."),
    via: str = _how("--via METHOD", f"Launch method: {', '.join(methods.METHODS)}."),
    gloo: bool = _how("--gloo", "Use Gloo as Horovod's controller (horovodrun).", False),
    rdma: bool = _how("--rdma", "MPI uses RDMA (mpirun).", False),
    torch: bool = _how("--torch", "Set torch.distributed's variables, for DDP.", False),
    image: str = _how("--image IMAGE", "Start the program in this Shifter image."),
    smpiargs: str = _how("--smpiargs TEXT", "Arguments for Spectrum MPI (jsrun)."),
    rankfile: str = _how("--rankfile FILE", "Rank file (ddl-mpirun)."),
    env: List[str] = _how("--env NAME=VALUE", "A variable for the program; repeatable.", ()),
    whole_script: bool = _printed("--batch", "Print the whole batch script.", False),
    ask: bool = _printed("--ask", "Print an srun that also allocates the nodes.", False),
    allocate: bool = _printed(
        "--allocate", "Print the command that allocates nodes to work on.", False
    ),
    run: bool = _printed("--run", "Run the program; only inside a job.", False),
    account: str = _job("--account NAME", "Account to charge."),
    time: str = _job("--time H:MM:SS", "Time limit."),
    queue: str = _job("--queue NAME", "Queue, partition or quality of service."),
    job_name: str = _job("--job-name NAME", "The job's name."),
    output: str = _job("--output FILE", "File for stdout."),
    error: str = _job("--error FILE", "File for stderr."),
    module: List[str] = _job(
        "--module NAMES", "Load these instead of the site's; repeatable.", ()
    ),
    setup: List[str] = _job(
        "--setup LINE", "Shell line instead of the activation; repeatable.", ()
    ),
    expand: bool = _job(
        "--expand", "Let the job's shell expand $NAME in the program's arguments.", False
    ),
) -> None:
    """Print the command that starts a program on many ranks, or run it.

    For example: ./hvd launch perlmutter-hvd --nodes 2 -- python train.py
    """
    asked = request.make(
        name,
        partition=partition,
        nodes=nodes or 0,
        ranks_per_node=ranks_per_node or 0,
        method=via,
        program=tuple(words or ()),
        hosts=tuple(schedulers.named_hosts(hosts_list)) if hosts_list else (),
        racks=racks or 0,
        aisles=aisles or 0,
        variables=_variables(env),
        modules=tuple(module),
        setup=tuple(setup),
        **dict(gloo=gloo, rdma=rdma, torch=torch, image=image, smpiargs=smpiargs),
        **dict(rankfile=rankfile, account=account, time=time, queue=queue, job_name=job_name),
        **dict(output=output, error=error, expand=expand),
    )
    job = schedulers.of(asked.site).hosts(asked.partition, os.environ)
    asked = dataclasses.replace(asked, job=None if job is None else tuple(job))
    if [whole_script, ask, allocate, run].count(True) > 1:
        raise HvdError("--batch, --ask, --allocate and --run exclude each other", "choose one")
    if not asked.program and not allocate:
        raise HvdError("no program to start", "put it behind --, for example: -- python train.py")
    request.check(asked)
    if run:
        start.run(asked, os.environ)  # does not return
    if allocate:
        text = batch.allocation(asked) + "\n"
    elif whole_script:
        text = batch.script(asked)
        submit = schedulers.of(asked.site).submit
        console.aside(f"to submit it, write it to a file: {submit} FILE")
    else:
        text = (batch.asking(asked) if ask else methods.quoted(asked)) + "\n"
        methods.check_hosts(asked)
        _note_needs(asked, ask)
    if (allocate or whole_script or ask) and asked.partition.account.needed and not account:
        console.aside(f"a job on {asked.site.name} has to name an account: --account NAME")
    sys.stdout.write(text)


def _note_needs(asked: Request, ask: bool) -> None:
    needed = {**methods.variables(asked), **asked.fabric}
    if needed and not methods.choose(asked).forwards:
        console.aside("it needs: " + "; ".join(batch.exports(needed)))
    if asked.job is None and asked.site.scheduler != "none" and not ask:
        console.aside("it is for inside of a job: --allocate prints how to get one")


def _variables(entries: List[str]) -> Dict[str, str]:
    for entry in entries:
        if "=" not in entry:
            raise HvdError(f"--env: '{entry}' gives no value", "--env NAME=VALUE")
    return dict(entry.split("=", 1) for entry in entries)
