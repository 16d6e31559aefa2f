"""``./hvd launch``."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any, Dict, List, Optional

import typer

from hvd.core import console
from hvd.core.errors import HvdError
from hvd.launch import batch, methods, program, request, schedulers
from hvd.launch.request import Request

_SHAPE = "Ranks and nodes"
_HOW = "Launcher"
_PRINTED = "Output"
_JOB = "Job"


def _option(default: Any, name: str, metavar: Optional[str], panel: str, help: str, **more: Any):
    return typer.Option(
        default,
        name,
        metavar=metavar,
        help=help,
        show_default=False,
        rich_help_panel=panel,
        **more,
    )


def _text(name: str, metavar: str, panel: str, help: str):
    return _option("", name, metavar, panel, help)


def _texts(name: str, metavar: str, panel: str, help: str):
    return _option([], name, metavar, panel, help)


def _flag(name: str, panel: str, help: str):
    return _option(False, name, None, panel, help)


def _number(name: str, metavar: str, help: str):
    return _option(None, name, metavar, _SHAPE, help, min=1)


_Nodes = _number("--nodes", "N", "Number of nodes. \\[default: 1, or those of --hosts]")
_Ranks = _number("--ranks-per-node", "R", "Ranks per node. \\[default: one per GPU]")
_Hosts = _text("--hosts", "LIST", _SHAPE, "Hosts, for example 'server[1-4]'.")
_Partition = _text("--partition", "NAME", _SHAPE, "Another of the site's partitions.")
_Racks = _number("--racks", "N", "Reserve this many whole racks (LSF).")
_Aisles = _number("--aisles", "N", "Number of aisles (ddlrun).")
_Via = _text("--via", "METHOD", _HOW, f"Launch method: {', '.join(methods.METHODS)}.")
_Gloo = _flag("--gloo", _HOW, "Use Gloo as Horovod's controller (horovodrun).")
_Rdma = _flag("--rdma", _HOW, "MPI uses RDMA (mpirun).")
_Torch = _flag("--torch", _HOW, "Set torch.distributed's variables, for DDP.")
_Image = _text("--image", "IMAGE", _HOW, "Start the program in this Shifter image.")
_Smpiargs = _text("--smpiargs", "TEXT", _HOW, "Arguments for Spectrum MPI (jsrun).")
_Rankfile = _text("--rankfile", "FILE", _HOW, "Rank file (ddl-mpirun).")
_Env = _texts("--env", "NAME=VALUE", _HOW, "A variable for the program; repeatable.")
_Batch = _flag("--batch", _PRINTED, "Print the whole batch script.")
_Ask = _flag("--ask", _PRINTED, "Print an srun that also allocates the nodes.")
_Allocate = _flag("--allocate", _PRINTED, "Print the command that allocates nodes to work on.")
_Run = _flag("--run", _PRINTED, "Run the program; only inside a job.")
_Account = _text("--account", "NAME", _JOB, "Account to charge.")
_Time = _text("--time", "H:MM:SS", _JOB, "Time limit.")
_Queue = _text("--queue", "NAME", _JOB, "Queue, partition or quality of service.")
_JobName = _text("--job-name", "NAME", _JOB, "The job's name.")
_Output = _text("--output", "FILE", _JOB, "File for stdout.")
_Error = _text("--error", "FILE", _JOB, "File for stderr.")
_Module = _texts("--module", "NAMES", _JOB, "Load these instead of the site's; repeatable.")
_Setup = _texts("--setup", "LINE", _JOB, "Shell line instead of the activation; repeatable.")
_Expand = _flag("--expand", _JOB, "Let the job's shell expand $NAME in the program's arguments.")


def launch(
    name: str = typer.Argument(..., metavar="ENV", help="Environment; see environments/sites."),
    words: Optional[List[str]] = typer.Argument(None, metavar="PROGRAM", help="Program."),
    nodes: Optional[int] = _Nodes,
    ranks_per_node: Optional[int] = _Ranks,
    hosts_list: str = _Hosts,
    partition: str = _Partition,
    racks: Optional[int] = _Racks,
    aisles: Optional[int] = _Aisles,
    via: str = _Via,
    gloo: bool = _Gloo,
    rdma: bool = _Rdma,
    torch: bool = _Torch,
    image: str = _Image,
    smpiargs: str = _Smpiargs,
    rankfile: str = _Rankfile,
    env: List[str] = _Env,
    whole_script: bool = _Batch,
    ask: bool = _Ask,
    allocate: bool = _Allocate,
    run: bool = _Run,
    account: str = _Account,
    time: str = _Time,
    queue: str = _Queue,
    job_name: str = _JobName,
    output: str = _Output,
    error: str = _Error,
    module: List[str] = _Module,
    setup: List[str] = _Setup,
    expand: bool = _Expand,
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
        **dict(
            gloo=gloo, rdma=rdma, torch=torch, image=image, smpiargs=smpiargs, rankfile=rankfile
        ),
        **dict(account=account, time=time, queue=queue, job_name=job_name),
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
        program.run(asked, os.environ)  # does not return
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
