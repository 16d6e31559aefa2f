"""``./hvd launch``."""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Optional, Tuple

import typer

from hvd.core import console
from hvd.core.errors import HvdError
from hvd.launch import batch, hosts, methods, program, request
from hvd.launch.request import Request
from hvd.model import site

_SHAPE = "How many ranks, and where"
_HOW = "How they are started"
_WHAT = "What comes of it"
_JOB = "What the scheduler is told"


def _text(name: str, metavar: str, panel: str, help: str):
    return typer.Option(
        "", name, metavar=metavar, help=help, show_default=False, rich_help_panel=panel
    )


def _flag(name: str, panel: str, help: str):
    return typer.Option(False, name, help=help, show_default=False, rich_help_panel=panel)


def _number(name: str, metavar: str, help: str):
    return typer.Option(
        None, name, metavar=metavar, help=help, show_default=False, rich_help_panel=_SHAPE
    )


def _several(name: str, metavar: str, panel: str, help: str):
    return typer.Option(
        [], name, metavar=metavar, help=help, show_default=False, rich_help_panel=panel
    )


NodesOption = _number("--nodes", "N", "Number of nodes.  [default: 1, or those of --hosts]")
RanksOption = _number("--ranks-per-node", "R", "Ranks per node.  [default: one per GPU]")
HostsOption = _text("--hosts", "LIST", _SHAPE, "Hosts, for example 'server[1-4]'.")
PartitionOption = _text("--partition", "NAME", _SHAPE, "Another of the site's partitions.")
RacksOption = _number("--racks", "N", "Reserve whole racks, that many (LSF).")
AislesOption = _number("--aisles", "N", "In that many aisles (ddlrun).")
ViaOption = _text("--via", "METHOD", _HOW, f"Launch method: {', '.join(methods.METHODS)}.")
GlooOption = _flag("--gloo", _HOW, "Horovod's controller is Gloo (horovodrun).")
RdmaOption = _flag("--rdma", _HOW, "MPI uses RDMA (mpirun).")
ImageOption = _text("--image", "IMAGE", _HOW, "Start the program in this Shifter image.")
SmpiargsOption = _text("--smpiargs", "TEXT", _HOW, "For Spectrum MPI (jsrun).")
RankfileOption = _text("--rankfile", "FILE", _HOW, "Which rank is where (ddl-mpirun).")
EnvOption = _several("--env", "NAME=VALUE", _HOW, "A variable for the program; repeatable.")
BatchOption = _flag("--batch", _WHAT, "Print the whole batch script.")
AskOption = _flag("--ask", _WHAT, "Print an srun that gets the nodes too.")
AllocateOption = _flag("--allocate", _WHAT, "Print the command that gets nodes to type on.")
RunOption = _flag("--run", _WHAT, "Run the program, inside a job.")
AccountOption = _text("--account", "NAME", _JOB, "Account to charge.")
TimeOption = _text("--time", "H:MM:SS", _JOB, "Time limit.")
QueueOption = _text("--queue", "NAME", _JOB, "Queue, partition or quality of service.")
JobNameOption = _text("--job-name", "NAME", _JOB, "The job's name.")
OutputOption = _text("--output", "FILE", _JOB, "File for stdout.")
ErrorOption = _text("--error", "FILE", _JOB, "File for stderr.")
ModuleOption = _several(
    "--module", "NAMES", _JOB, "Load these in place of the site's; repeatable."
)
SetupOption = _several(
    "--setup", "LINE", _JOB, "Shell in place of the environment's activation; repeatable."
)
ExpandOption = _flag("--expand", _JOB, "Leave $NAME in the program's words to the job's shell.")


def launch(
    name: str = typer.Argument(..., metavar="ENV", help="Environment; see environments/sites."),
    words: Optional[List[str]] = typer.Argument(None, metavar="PROGRAM", help="To run."),
    nodes: Optional[int] = NodesOption,
    ranks_per_node: Optional[int] = RanksOption,
    hosts_list: str = HostsOption,
    partition: str = PartitionOption,
    racks: Optional[int] = RacksOption,
    aisles: Optional[int] = AislesOption,
    via: str = ViaOption,
    gloo: bool = GlooOption,
    rdma: bool = RdmaOption,
    image: str = ImageOption,
    smpiargs: str = SmpiargsOption,
    rankfile: str = RankfileOption,
    env: List[str] = EnvOption,
    whole_script: bool = BatchOption,
    ask: bool = AskOption,
    allocate: bool = AllocateOption,
    run: bool = RunOption,
    account: str = AccountOption,
    time: str = TimeOption,
    queue: str = QueueOption,
    job_name: str = JobNameOption,
    output: str = OutputOption,
    error: str = ErrorOption,
    module: List[str] = ModuleOption,
    setup: List[str] = SetupOption,
    expand: bool = ExpandOption,
) -> None:
    """Print the command that starts a program on many ranks, or run it.

    For example: ./hvd launch perlmutter-hvd --nodes 2 -- python train.py
    """
    machine = site.of(name)
    named = tuple(hosts.named(hosts_list)) if hosts_list else ()
    kind = _partition(machine, name, partition)
    asked = Request(
        site=machine,
        environment=name,
        partition=kind,
        nodes=(len(named) or 1) if nodes is None else nodes,
        ranks_per_node=kind.default_ranks if ranks_per_node is None else ranks_per_node,
        method=via or machine.launcher,
        program=tuple(words or ()),
        hosts=named,
        job=_job(machine, kind),
        racks=_given("--racks", racks),
        aisles=_given("--aisles", aisles),
        variables=_variables(env),
        modules=tuple(module),
        setup=tuple(setup),
        **dict(gloo=gloo, rdma=rdma, image=image, smpiargs=smpiargs, rankfile=rankfile),
        **dict(account=account, time=time, queue=queue, job_name=job_name),
        **dict(output=output, error=error, expand=expand),
    )
    if [whole_script, ask, allocate, run].count(True) > 1:
        raise HvdError("--batch, --ask, --allocate and --run exclude each other", "choose one")
    if not asked.program and not allocate:
        raise HvdError("no program to start", "put it behind --, for example: -- python train.py")
    request.check(asked)
    if run:
        program.run(asked, os.environ)
    sys.stdout.write(_printed(asked, whole_script, ask, allocate))


def _printed(asked: Request, whole_script: bool, ask: bool, allocate: bool) -> str:
    """Return the text for standard output; write notes to standard error."""
    if allocate:
        return batch.allocation(asked) + "\n"
    if whole_script:
        submit = {"slurm": "sbatch", "lsf": "bsub"}.get(asked.site.scheduler, "")
        text = batch.script(asked)
        console.aside(f"to submit it, write it to a file: {submit} FILE")
        return text
    text = batch.asking(asked) if ask else methods.quoted(asked)
    methods.check_hosts(asked)
    if asked.fabric and not methods.choose(asked).forwards:
        console.aside("it needs: " + "; ".join(batch.exports(asked.fabric)))
    if asked.job is None and asked.site.scheduler != "none" and not ask:
        console.aside("it is for inside of a job: --allocate prints how to get one")
    return text + "\n"


def _partition(machine: site.Site, name: str, partition: str) -> site.Partition:
    wanted = partition or machine.environments[name].partition
    if wanted not in machine.partitions:
        raise HvdError(
            f"--partition: {machine.name} has none called '{wanted}'",
            request.nearest(wanted, list(machine.partitions)),
        )
    return machine.partitions[wanted]


def _job(machine: site.Site, kind: site.Partition) -> Optional[Tuple[str, ...]]:
    launch_node = bool(kind.lsf and kind.lsf.launch_slots)
    found = hosts.of_job(machine.scheduler, launch_node, os.environ)
    return None if found is None else tuple(found)


def _given(option: str, value: Optional[int]) -> int:
    """``value``, which is 0 where the option is not given."""
    if value is not None and value < 1:
        raise HvdError(f"{option}: {value} is not a positive number", "give 1 or more")
    return value or 0


def _variables(entries: List[str]) -> Dict[str, str]:
    for entry in entries:
        if "=" not in entry:
            raise HvdError(f"--env: '{entry}' gives no value", "--env NAME=VALUE")
    return dict(entry.split("=", 1) for entry in entries)
