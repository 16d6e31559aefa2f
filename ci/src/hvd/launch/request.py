"""A request to ``./hvd launch``, checked against the site."""

from __future__ import annotations

import dataclasses
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
#: Options that several launch methods have a way for; others are taken where a line has the value.
_HOSTS = {"slots", "job_slots", "dealt_ranks"}


def _option(panel: str, usage: str, help: str, default: Any = "") -> Any:
    """Define a field that is an option of ``./hvd launch``, such as ``--nodes N``."""
    metadata = {"panel": panel, "usage": usage, "help": help}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Request:
    """A launch.  An option is empty or 0 where not given; commands have it by its name."""

    site: Site
    environment: str
    partition: Partition
    program: Tuple[str, ...] = ()  #: the words that every rank runs
    job: Optional[Tuple[str, ...]] = None  #: the compute nodes of this job; None outside of one

    nodes: int = _option(
        RANKS, "--nodes N", "Number of nodes. \\[default: 1, or those of --hosts]", 0
    )
    ranks_per_node: int = _option(
        RANKS, "--ranks-per-node R", "Ranks per node. \\[default: one per GPU]", 0
    )
    hosts: Tuple[str, ...] = _option(RANKS, "--hosts LIST", "Hosts, for example 'server[1-4]'.")
    racks: int = _option(RANKS, "--racks N", "Reserve this many whole racks (LSF).", 0)
    aisles: int = _option(RANKS, "--aisles N", "Number of aisles (ddlrun).", 0)
    method: str = _option(LAUNCHER, "--via METHOD", "Launch method: srun, mpirun, horovodrun, ...")
    gloo: bool = _option(
        LAUNCHER, "--gloo", "Use Gloo as Horovod's controller (horovodrun).", False
    )
    rdma: bool = _option(LAUNCHER, "--rdma", "MPI uses RDMA (mpirun).", False)
    torch: bool = _option(
        LAUNCHER, "--torch", "Set torch.distributed's variables, for DDP.", False
    )
    image: str = _option(LAUNCHER, "--image IMAGE", "Start the program in this Shifter image.")
    smpiargs: str = _option(LAUNCHER, "--smpiargs TEXT", "Arguments for Spectrum MPI (jsrun).")
    rankfile: str = _option(LAUNCHER, "--rankfile FILE", "Rank file (ddl-mpirun).")
    variables: Mapping[str, str] = _option(
        LAUNCHER, "--env NAME=VALUE", "A variable for the program; repeatable.", {}
    )
    account: str = _option(JOB, "--account NAME", "Account to charge.")
    time: str = _option(JOB, "--time H:MM:SS", "Time limit.")
    queue: str = _option(JOB, "--queue NAME", "Queue, partition or quality of service.")
    job_name: str = _option(JOB, "--job-name NAME", "The job's name.")
    output: str = _option(JOB, "--output FILE", "File for stdout.")
    error: str = _option(JOB, "--error FILE", "File for stderr.")
    modules: Tuple[str, ...] = _option(
        JOB, "--module NAMES", "Load these instead of the site's; repeatable.", ()
    )
    setup: Tuple[str, ...] = _option(
        JOB, "--setup LINE", "Shell line instead of the activation; repeatable.", ()
    )
    expand: bool = _option(
        JOB, "--expand", "Let the job's shell expand $NAME in the program's arguments.", False
    )

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
    site = sites.of(environment)
    name = partition or site.environments[environment].partition
    if name not in site.partitions:
        hint = nearest(name, site.partitions)
        raise HvdError(f"--partition: {site.name} has no '{name}'", hint)
    found = Request(site, environment, site.partitions[name], **given)
    method = found.method or site.launcher
    if method not in site.allowed:
        if method not in sites.launchers().methods:
            hint = nearest(method, {*sites.launchers().methods, *site.allowed})
            raise HvdError(f"--via: no launch method is called '{method}'", hint)
        reason = (
            f"not on {site.name}, which has {sites.launchers().schedulers[site.scheduler].title}"
        )
        if method in site.refused:
            reason = f"{method} on {site.name}: {site.refused[method].reason}"
        raise HvdError(f"--via {method}: {reason}", f"use {' or '.join(site.allowed)}")
    return dataclasses.replace(
        found,
        nodes=found.nodes or len(found.hosts) or 1,
        ranks_per_node=found.ranks_per_node or found.partition.default_ranks,
        method=method,
    )


def check(request: Request) -> None:
    """Refuse what cannot work."""
    for problems in (_options, _method, _ranks, _nodes):
        for reason, hint in problems(request):
            raise HvdError(reason, hint)


def _options(request: Request) -> Iterator[Tuple[str, str]]:
    """Yield what is wrong with the values alone, and a hint for each."""
    if request.time and not re.fullmatch(r"\d+:[0-5]\d:[0-5]\d", request.time):
        reason = f"--time: '{request.time}' is not hours, minutes and seconds"
        yield reason, "write ten minutes as 0:10:00, on every machine"
    for field in options():
        value = getattr(request, field.name)
        # each is one word of the scheduler's or the launcher's options
        if isinstance(value, str) and field.name != "smpiargs" and re.search(r"\s", value):
            yield f"{field.metadata['usage'].split()[0]}: '{value}' has blanks", "remove them"
    for name in request.variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield f"--env: '{name}' is not the name of a variable", "--env NAME=VALUE"
    account, suffix = request.account, request.partition.account.suffix
    if account and not account.endswith(suffix):
        where = f"{request.partition.name} of {request.site.name}"
        reason = f"--account: accounts of jobs in {where} end in {suffix}"
        yield reason, f"--account {account}{suffix}"


def _method(request: Request) -> Iterator[Tuple[str, str]]:
    """Yield what the launch method cannot do."""
    method, name = request.settings, request.method
    if method.operations not in ("", request.use.operations):
        instead = [each for each, own in request.site.allowed.items() if not own.operations]
        reason = f"{name} is for IBM DDL, and {request.environment} is built without it"
        yield reason, f"use {' or '.join(instead)}"
    taken = {
        *method.values,
        *(["hosts"] if _HOSTS & method.values else []),
        *(["rdma"] if method.without_rdma is not None else []),
        *(["image"] if method.image else []),
        *("method", "torch", "variables"),
    }
    for field in options():
        if field.metadata["panel"] == LAUNCHER or field.name == "hosts":
            if getattr(request, field.name) and field.name not in taken:
                reason = f"--{field.name}: {name} on {request.site.name} does not take it"
                yield reason, "leave it out, or choose another method with --via"
    for option in method.needs:
        if option != "hosts" and not getattr(request, option):
            yield f"{name} needs --{option}", f"give --{option}, or use another method"
    if request.gloo and environments.load(request.environment).root.variants.get("gloo") is False:
        yield f"--gloo: {request.environment} is built without Gloo (~gloo)", "leave --gloo out"
    if method.every_gpu and request.ranks_per_node != request.partition.gpus:
        hint = f"leave --ranks-per-node out, or give {request.partition.gpus}"
        yield f"{name} starts a rank on every GPU", hint
    racks, aisles = request.racks or 1, request.aisles or 1
    if {"rack_nodes", "shape"} & method.values and (request.nodes % racks or racks % aisles):
        reason = f"{request.nodes} nodes cannot be divided by {racks} racks in {aisles} aisles"
        yield reason, "choose numbers that divide: DDL needs as many nodes on every rack"


def _ranks(request: Request) -> Iterator[Tuple[str, str]]:
    """Yield why a node cannot have so many ranks."""
    ranks, gpus, operations = (
        request.ranks_per_node,
        request.partition.gpus,
        request.use.operations,
    )
    if not ranks > gpus > 0 or operations == "cpu":
        return
    asked, limit = f"{ranks} ranks on a node with {gpus} GPUs", request.partition.ranks_per_gpu
    if limit and ranks > limit.max * gpus:
        yield f"{asked}: {limit.reason}", limit.remedy
    if operations in _ONE_RANK_PER_GPU:
        reason = f"{asked}: {_ONE_RANK_PER_GPU[operations]} cannot give a GPU to two ranks"
        yield reason, f"ask for at most {gpus} with --ranks-per-node, and for more nodes"


def _nodes(request: Request) -> Iterator[Tuple[str, str]]:
    """Yield why there cannot be so many nodes, or those hosts."""
    nodes, hosts, job = request.nodes, request.hosts, request.job
    if job is not None and nodes > len(job):
        reason = f"{nodes} nodes are asked for, and the job has {len(job)}"
        yield reason, "ask for fewer, or get a larger job"
    if hosts and nodes > len(hosts):
        reason = f"{nodes} nodes are asked for, and --hosts names {len(hosts)}"
        yield reason, "name more hosts, or ask for fewer nodes"
    foreign = sorted(set(hosts) - set(job or hosts))
    if foreign:
        hint = f"use those of {', '.join(job or ())}, or leave --hosts out"
        yield f"--hosts: {foreign[0]} is not a node of the job", hint
    racks, lsf = request.racks, request.partition.lsf
    if lsf is None and (racks or request.aisles):
        yield f"{request.site.name} has no racks to ask for", "leave --racks and --aisles out"
    if request.aisles and not racks:
        yield "--aisles needs the number of racks in them", "add --racks"
    if racks and lsf and lsf.nodes_per_rack and nodes > racks * lsf.nodes_per_rack:
        reason = f"{nodes} nodes do not fit on {racks} racks of {lsf.nodes_per_rack}"
        yield reason, f"ask for {-(-nodes // lsf.nodes_per_rack)} racks or more"
