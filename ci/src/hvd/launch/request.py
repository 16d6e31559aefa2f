"""A request to ``./hvd launch``, checked against the site."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Dict, Mapping, Optional, Tuple

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
        raise HvdError(
            f"--partition: {machine.name} has no '{wanted}'",
            nearest(wanted, list(machine.partitions)),
        )
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
    _check_words(request)
    _check_account(request)
    _check_ranks(request)
    _check_hosts(request)
    _check_racks(request)


def _check_words(request: Request) -> None:
    if request.time and not re.fullmatch(r"\d+:[0-5]\d:[0-5]\d", request.time):
        raise HvdError(
            f"--time: '{request.time}' is not hours, minutes and seconds",
            "write ten minutes as 0:10:00, on every machine",
        )
    # each is one word of the scheduler's options
    for option in ("account", "queue", "job_name", "output", "error", "image", "rankfile"):
        if re.search(r"\s", getattr(request, option)):
            shown = option.replace("_", "-")
            raise HvdError(f"--{shown}: '{getattr(request, option)}' has blanks", "remove them")
    for name in request.variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise HvdError(f"--env: '{name}' is not the name of a variable", "--env NAME=VALUE")


def _check_account(request: Request) -> None:
    account, suffix = request.account, request.partition.account.suffix
    if account and not account.endswith(suffix):
        raise HvdError(
            f"--account: accounts of jobs in {request.partition.name} of {request.site.name} end "
            f"in {suffix}",
            f"--account {account}{suffix}",
        )


def _check_ranks(request: Request) -> None:
    ranks, gpus = request.ranks_per_node, request.partition.gpus
    if ranks <= gpus or not gpus or request.use.operations == "cpu":
        return
    asked = f"{ranks} ranks on a node with {gpus} GPUs"
    limit = request.partition.ranks_per_gpu
    if limit and ranks > limit.max * gpus:
        raise HvdError(f"{asked}: {limit.reason}", limit.remedy)
    library = _ONE_RANK_PER_GPU.get(request.use.operations)
    if library:
        raise HvdError(
            f"{asked}: {library} cannot give a GPU to two ranks",
            f"ask for at most {gpus} with --ranks-per-node, and for more nodes",
        )


def _check_hosts(request: Request) -> None:
    if request.job is not None and request.nodes > len(request.job):
        raise HvdError(
            f"{request.nodes} nodes are asked for, and the job has {len(request.job)}",
            "ask for fewer, or get a larger job",
        )
    if request.hosts and request.nodes > len(request.hosts):
        raise HvdError(
            f"{request.nodes} nodes are asked for, and --hosts names {len(request.hosts)}",
            "name more hosts, or ask for fewer nodes",
        )
    foreign = sorted(set(request.hosts) - set(request.job or request.hosts))
    if foreign:
        raise HvdError(
            f"--hosts: {foreign[0]} is not a node of the job",
            f"use those of {', '.join(request.job or ())}, or leave --hosts out",
        )


def _check_racks(request: Request) -> None:
    racks, lsf = request.racks, request.partition.lsf
    if lsf is None and (racks or request.aisles):
        raise HvdError(
            f"{request.site.name} has no racks to ask for", "leave --racks and --aisles out"
        )
    if request.aisles and not racks:
        raise HvdError("--aisles needs the number of racks in them", "add --racks")
    if racks and lsf.nodes_per_rack and request.nodes > racks * lsf.nodes_per_rack:
        raise HvdError(
            f"{request.nodes} nodes do not fit on {racks} racks of {lsf.nodes_per_rack}",
            f"ask for {-(-request.nodes // lsf.nodes_per_rack)} racks or more",
        )
