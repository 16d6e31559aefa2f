"""A request to ``./hvd launch``, checked against the site."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from hvd.core.errors import HvdError, nearest
from hvd.model import site as site_module
from hvd.model.site import Partition, Settings, Site, Use

#: NVIDIA's NCCL User Guide, "Creating a Communicator": two ranks of one must not share a device.
#: RCCL has NCCL's interface.
_ONE_RANK_PER_GPU = {"nccl": "NCCL", "rccl": "RCCL"}


@dataclasses.dataclass(frozen=True)
class Request:
    """A launch; an option that is not given is empty or 0."""

    site: Site
    environment: str
    partition: Partition
    nodes: int
    ranks_per_node: int
    method: str  #: key of `methods.METHODS`
    program: Tuple[str, ...] = ()  #: the words that every rank runs
    hosts: Tuple[str, ...] = ()  #: as the user names them
    job: Optional[Tuple[str, ...]] = None  #: the compute nodes of this job; None outside of one
    gloo: bool = False  #: Horovod's controller is Gloo
    rdma: bool = False  #: MPI uses RDMA
    account: str = ""  #: to charge
    time: str = ""  #: limit, H:MM:SS
    queue: str = ""  #: queue, partition or QOS, as the site calls it
    job_name: str = ""
    output: str = ""  #: file for stdout
    error: str = ""  #: file for stderr
    image: str = ""  #: container image
    racks: int = 0  #: the most racks that the nodes may be on
    aisles: int = 0  #: number of aisles with these racks
    smpiargs: str = ""  #: for Spectrum MPI, by jsrun
    rankfile: str = ""  #: which rank is where, for ddl-mpirun
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: the user's
    modules: Tuple[str, ...] = ()  #: in place of the site's, one `module load` each
    setup: Tuple[str, ...] = ()  #: lines of shell in place of the environment's activation
    torch: bool = False  #: the ranks get torch.distributed's variables
    expand: bool = False  #: the job's shell expands $NAME in the program's words

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def use(self) -> Use:
        return self.site.environments[self.environment]

    @property
    def settings(self) -> Settings:
        return self.site.allowed[self.method]

    @property
    def fabric(self) -> Dict[str, str]:
        """The environment variables that the site's network needs."""
        return self.site.variables(self.use.operations, self.nodes, self.rdma)

    @property
    def fills_job(self) -> bool:
        """True inside a job with just as many nodes."""
        return self.job is not None and len(self.job) == self.nodes


def make(
    environment: str,
    *,
    partition: str = "",
    nodes: int = 0,
    ranks_per_node: int = 0,
    method: str = "",
    hosts: Tuple[str, ...] = (),
    **options: Any,
) -> Request:
    """Return a launch of ``environment`` with the site's defaults for what is not given.

    Raises:
        HvdError: no site has the environment, or its site has no such partition.
    """
    machine = site_module.of(environment)
    wanted = partition or machine.environments[environment].partition
    if wanted not in machine.partitions:
        hint = nearest(wanted, machine.partitions)
        raise HvdError(f"--partition: {machine.name} has no '{wanted}'", hint)
    kind = machine.partitions[wanted]
    return Request(
        site=machine,
        environment=environment,
        partition=kind,
        nodes=nodes or len(hosts) or 1,
        ranks_per_node=ranks_per_node or kind.default_ranks,
        method=method or machine.launcher,
        hosts=hosts,
        **options,
    )


def check(request: Request) -> None:
    """Refuse what cannot work.

    Raises:
        HvdError: the first reason.
    """
    for reason, hint in _problems(request):
        raise HvdError(reason, hint)


def _problems(request: Request) -> Iterator[Tuple[str, str]]:
    """Yield each reason why ``request`` cannot work, and a hint."""
    if request.time and not re.fullmatch(r"\d+:[0-5]\d:[0-5]\d", request.time):
        reason = f"--time: '{request.time}' is not hours, minutes and seconds"
        yield reason, "write ten minutes as 0:10:00, on every machine"
    # each is one word of the scheduler's options
    for option in ("account", "queue", "job_name", "output", "error", "image", "rankfile"):
        value = getattr(request, option)
        if re.search(r"\s", value):
            yield f"--{option.replace('_', '-')}: '{value}' has blanks", "remove them"
    for name in request.variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield f"--env: '{name}' is not the name of a variable", "--env NAME=VALUE"

    site, kind = request.site, request.partition
    account, suffix = request.account, kind.account.suffix
    if account and not account.endswith(suffix):
        reason = f"--account: accounts of jobs in {kind.name} of {site.name} end in {suffix}"
        yield reason, f"--account {account}{suffix}"

    ranks, gpus, operations = request.ranks_per_node, kind.gpus, request.use.operations
    if ranks > gpus > 0 and operations != "cpu":
        asked, limit = f"{ranks} ranks on a node with {gpus} GPUs", kind.ranks_per_gpu
        if limit and ranks > limit.max * gpus:
            yield f"{asked}: {limit.reason}", limit.remedy
        if operations in _ONE_RANK_PER_GPU:
            reason = f"{asked}: {_ONE_RANK_PER_GPU[operations]} cannot give a GPU to two ranks"
            yield reason, f"ask for at most {gpus} with --ranks-per-node, and for more nodes"

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

    racks, lsf = request.racks, kind.lsf
    if lsf is None and (racks or request.aisles):
        yield f"{site.name} has no racks to ask for", "leave --racks and --aisles out"
    if request.aisles and not racks:
        yield "--aisles needs the number of racks in them", "add --racks"
    if racks and lsf.nodes_per_rack and nodes > racks * lsf.nodes_per_rack:
        reason = f"{nodes} nodes do not fit on {racks} racks of {lsf.nodes_per_rack}"
        yield reason, f"ask for {-(-nodes // lsf.nodes_per_rack)} racks or more"
