"""A request to ``./hvd launch``, checked against the site."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from hvd.core.errors import HvdError, nearest
from hvd.model import environment as environments
from hvd.model import site as sites
from hvd.model.site import Method, Partition, Scheduler, Site, Use

#: NVIDIA's NCCL User Guide, "Creating a Communicator": two ranks of one must not share a device.
#: RCCL has NCCL's interface.
_ONE_RANK_PER_GPU = {"nccl": "NCCL", "rccl": "RCCL"}
#: The groups of options.
RANKS, LAUNCHER, JOB = "Ranks and nodes", "Launcher", "Job"
#: The values of a command that are made of hosts.
HOSTS = {"slots", "job_slots", "dealt_ranks"}


def _option(panel: str, usage: str, default: Any, help: str) -> Any:
    """Define a field that is an option of ``./hvd launch``, such as ``--nodes N``."""
    metadata = {"panel": panel, "usage": usage, "help": help}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


_ranks, _launcher, _job = (functools.partial(_option, panel) for panel in (RANKS, LAUNCHER, JOB))
_NODES = "Number of nodes. \\[default: 1, or those of --hosts]"


@dataclasses.dataclass(frozen=True)
class Request:
    """A launch.  An option is empty or 0 where not given; commands have it by its name."""

    site: Site
    environment: str
    partition: Partition
    program: Tuple[str, ...] = ()  #: the words that every rank runs
    job: Optional[Tuple[str, ...]] = None  #: the compute nodes of this job; None outside of one

    nodes: int = _ranks("--nodes N", 0, _NODES)
    ranks_per_node: int = _ranks(
        "--ranks-per-node R", 0, "Ranks per node; by default one per GPU."
    )
    hosts: Tuple[str, ...] = _ranks("--hosts LIST", (), "Hosts, for example 'server[1-4]'.")
    racks: int = _ranks("--racks N", 0, "Reserve this many whole racks (LSF).")
    aisles: int = _ranks("--aisles N", 0, "Number of aisles (ddlrun).")
    method: str = _launcher("--via METHOD", "", "Launch method, such as mpirun.")
    gloo: bool = _launcher("--gloo", False, "Use Gloo as Horovod's controller (horovodrun).")
    rdma: bool = _launcher("--rdma", False, "MPI uses RDMA (mpirun).")
    torch: bool = _launcher("--torch", False, "Set torch.distributed's variables, for DDP.")
    image: str = _launcher("--image IMAGE", "", "Start the program in this Shifter image.")
    smpiargs: str = _launcher("--smpiargs TEXT", "", "Arguments for Spectrum MPI (jsrun).")
    rankfile: str = _launcher("--rankfile FILE", "", "Rank file (ddl-mpirun).")
    variables: Mapping[str, str] = _launcher(
        "--env NAME=VALUE", {}, "A variable for the program; repeatable."
    )
    account: str = _job("--account NAME", "", "Account to charge.")
    time: str = _job("--time H:MM:SS", "", "Time limit.")
    queue: str = _job("--queue NAME", "", "Queue, partition or quality of service.")
    job_name: str = _job("--job-name NAME", "", "The job's name.")
    output: str = _job("--output FILE", "", "File for stdout.")
    error: str = _job("--error FILE", "", "File for stderr.")
    modules: Tuple[str, ...] = _job(
        "--module NAMES", (), "Load these instead of the site's; repeatable."
    )
    setup: Tuple[str, ...] = _job(
        "--setup LINE", (), "Shell line instead of the activation; repeatable."
    )
    expand: bool = _job("--expand", False, "Let the job's shell expand $NAME in the arguments.")

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def use(self) -> Use:
        return self.site.environments[self.environment]

    @property
    def settings(self) -> Method:
        return self.site.allowed[self.method]

    @property
    def scheduler(self) -> Scheduler:
        return sites.launchers().schedulers[self.site.scheduler]

    @property
    def fabric(self) -> Dict[str, str]:
        """The environment variables that the site's network needs."""
        return self.site.variables(self.use.operations, self.nodes, self.rdma)


def options() -> Iterator[dataclasses.Field]:
    """Yield the fields that are options of ``./hvd launch``."""
    return (field for field in dataclasses.fields(Request) if field.metadata)


def make(environment: str, *, partition: str = "", **given: Any) -> Request:
    """Return a launch of ``environment`` with the site's defaults for what is not given."""
    site, launchers = sites.of(environment), sites.launchers()
    name = partition or site.environments[environment].partition
    if name not in site.partitions:
        hint = f"use one of {', '.join(site.partitions)}"
        raise HvdError(f"--partition: {site.name} has no '{name}'", hint)
    found = Request(site, environment, site.partitions[name], **given)
    method = found.method or site.launcher
    if method not in site.allowed:
        if method not in launchers.methods:
            hint = nearest(method, {*launchers.methods, *site.allowed})
            raise HvdError(f"--via: no launch method is called '{method}'", hint)
        reason = f"not for {launchers.schedulers[site.scheduler].title} of {site.name}"
        if method in site.refused:
            reason = f"{site.name}: {site.refused[method].reason}"
        raise HvdError(f"--via {method}: {reason}", f"use {' or '.join(site.allowed)}")
    return dataclasses.replace(
        found,
        partition=_with_queue(found.partition, found.queue),
        nodes=found.nodes or len(found.hosts) or 1,
        ranks_per_node=found.ranks_per_node or found.partition.default_ranks,
        method=method,
    )


def _with_queue(partition: Partition, queue: str) -> Partition:
    """Return the nodes of ``partition`` as ``queue`` gives them, if the user asks for one."""
    if not queue:
        return partition
    # a queue is a QOS at sites with these
    slurm = {"qos" if partition.slurm.qos else "partition": queue}
    changed = {"slurm": dataclasses.replace(partition.slurm, **slurm)}
    for name in ("lsf", "pbs"):
        if getattr(partition, name):
            changed[name] = dataclasses.replace(getattr(partition, name), queue=queue)
    return dataclasses.replace(partition, **changed)


def check(request: Request) -> None:
    """Refuse what cannot work."""
    for reason, hint in _problems(request):
        raise HvdError(reason, hint)


def _problems(request: Request) -> Iterator[Tuple[str, str]]:
    """Yield each reason why ``request`` cannot work, and a hint."""
    site, kind, method, via = request.site, request.partition, request.settings, request.method
    if request.time and not re.fullmatch(r"\d+:[0-5]\d:[0-5]\d", request.time):
        reason = f"--time: '{request.time}' is not hours, minutes and seconds"
        yield reason, "use H:MM:SS, for example 0:10:00"
    taken = {
        *(*method.values, "method", "torch", "variables"),
        *(["hosts"] if HOSTS & method.values else []),
        *(["rdma"] if method.without_rdma is not None else []),
    }
    if method.shifter is None and "shifter_modules" in method.values:
        taken.discard("image")
    for field in options():
        value, name = getattr(request, field.name), field.metadata["usage"].split()[0]
        # each is one word of the scheduler's or the launcher's options, or of a script's comment
        unfit = r"[\s;&|()$`\"'#]" if field.metadata["panel"] == JOB else r"\s"
        found = isinstance(value, str) and field.name != "smpiargs" and re.search(unfit, value)
        if found:
            what = "a blank" if found[0].isspace() else f"a '{found[0]}'"
            yield f"{name}: '{value}' has {what}", "remove it"
        own = field.metadata["panel"] == LAUNCHER or field.name == "hosts"
        if value and own and field.name not in taken:
            hint = "leave it out, or choose another method with --via"
            yield f"{name}: {via} on {site.name} does not take it", hint
    for name in request.variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield f"--env: '{name}' is not the name of a variable", "--env NAME=VALUE"
    account, suffix = request.account, kind.account.suffix
    if account and not account.endswith(suffix):
        reason = f"--account: accounts of jobs in {kind.name} of {site.name} end in {suffix}"
        yield reason, f"--account {account}{suffix}"

    if method.operations not in ("", request.use.operations):
        reason = f"{via} is for IBM DDL, and {request.environment} is built without it"
        yield reason, f"use {' or '.join(k for k, v in site.allowed.items() if not v.operations)}"
    for option in method.needs:
        if option != "hosts" and not getattr(request, option):
            yield f"{via} needs --{option}", f"give --{option}, or use another method"
    if request.gloo and environments.load(request.environment).root.variants.get("gloo") is False:
        yield f"--gloo: {request.environment} is built without Gloo (~gloo)", "leave --gloo out"

    nodes, ranks, gpus = request.nodes, request.ranks_per_node, kind.gpus
    if method.every_gpu and ranks != gpus:
        yield f"{via} starts a rank on every GPU", f"leave --ranks-per-node out, or give {gpus}"
    if ranks > gpus > 0 and request.use.operations != "cpu":
        asked, limit = f"{ranks} ranks on a node with {gpus} GPUs", kind.ranks_per_gpu
        library = _ONE_RANK_PER_GPU.get(request.use.operations)
        if limit and ranks > limit.max * gpus:
            yield f"{asked}: {limit.reason}", limit.remedy
        if library:
            hint = f"ask for at most {gpus} with --ranks-per-node, and for more nodes"
            yield f"{asked}: {library} cannot give a GPU to two ranks", hint

    hosts, job = request.hosts, request.job
    if job is not None and nodes > len(job):
        reason = f"{nodes} nodes are asked for, and the job has {len(job)}"
        yield reason, "ask for fewer, or get a larger job"
    if hosts and nodes > len(hosts):
        reason = f"{nodes} nodes are asked for, and --hosts names {len(hosts)}"
        yield reason, "name more hosts, or ask for fewer nodes"
    for host in sorted(set(hosts) - set(job or hosts)):
        hint = f"use those of {', '.join(job or ())}, or leave --hosts out"
        yield f"--hosts: {host} is not a node of the job", hint

    racks, aisles, lsf = request.racks, request.aisles, kind.lsf
    if lsf is None and (racks or aisles):
        yield f"{site.name} has no racks to ask for", "leave --racks and --aisles out"
    if aisles and not racks:
        yield "--aisles needs the number of racks in them", "add --racks"
    if racks and lsf.nodes_per_rack and nodes > racks * lsf.nodes_per_rack:
        reason = f"{nodes} nodes do not fit on {racks} racks of {lsf.nodes_per_rack}"
        yield reason, f"ask for {-(-nodes // lsf.nodes_per_rack)} racks or more"
    shaped = racks and {"rack_nodes", "shape"} & method.values
    if shaped and (nodes % racks or racks % (aisles or 1)):
        reason = f"{nodes} nodes cannot be divided by {racks} racks in {aisles or 1} aisles"
        yield reason, "choose numbers that divide: DDL needs as many nodes on every rack"
