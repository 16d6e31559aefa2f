"""What is asked of ``./hvd launch``, checked against the site."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import Dict, List, Mapping, Optional, Tuple

from hvd.core.errors import HvdError
from hvd.model.site import Partition, Settings, Site, Use

_TIME = re.compile(r"(\d+):([0-5]\d):([0-5]\d)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: NVIDIA's NCCL User Guide, "Creating a Communicator": a device may not be two ranks of it.
#: RCCL has NCCL's interface.
_ONE_RANK_PER_GPU = {"nccl": "NCCL", "rccl": "RCCL"}


@dataclasses.dataclass(frozen=True)
class Request:
    """A launch.

    Args:
        environment: its name.
        nodes: how many.
        ranks_per_node: how many on each.
        method: the launch method's name.
        program: the words of the program that every rank runs.
        hosts: where the user names them.
        job: the nodes of the job that we are in; None outside of one.
        gloo: whether Horovod's controller is to be Gloo.
        rdma: whether MPI is to use RDMA.
        account: what the job is billed to.
        time: limit, H:MM:SS.
        queue: queue, partition or quality of service, as the site has it.
        job_name: for the scheduler.
        output: file for what the job prints.
        error: file for its errors.
        image: container image.
        racks: how many racks the nodes may be on; 0 for any.
        aisles: how many aisles those racks are in; 0 where it does not matter.
        smpiargs: what jsrun hands to Spectrum MPI.
        rankfile: which rank is where, for ddl-mpirun.
        variables: the user's environment variables.
        modules: the modules to load, one `module load` each, in place of the site's.
        setup: lines of shell in place of the environment's activation.
        expand: whether $NAME in the program's words is for the job's shell.
    """

    site: Site
    environment: str
    partition: Partition
    nodes: int
    ranks_per_node: int
    method: str
    program: Tuple[str, ...] = ()
    hosts: Tuple[str, ...] = ()
    job: Optional[Tuple[str, ...]] = None
    gloo: bool = False
    rdma: bool = False
    account: str = ""
    time: str = ""
    queue: str = ""
    job_name: str = ""
    output: str = ""
    error: str = ""
    image: str = ""
    racks: int = 0
    aisles: int = 0
    smpiargs: str = ""
    rankfile: str = ""
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    modules: Tuple[str, ...] = ()
    setup: Tuple[str, ...] = ()
    expand: bool = False

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
        """Whether it is for all nodes of the job that we are in."""
        return self.job is not None and len(self.job) == self.nodes


def check(request: Request) -> None:
    """Refuse what cannot work.

    Raises:
        HvdError: the first reason.
    """
    _check_numbers(request)
    _check_words(request)
    _check_ranks(request)
    _check_hosts(request)
    _check_racks(request)


def _check_numbers(request: Request) -> None:
    for option in ("nodes", "ranks_per_node"):
        value = getattr(request, option)
        if value < 1:
            shown = option.replace("_", "-")
            raise HvdError(f"--{shown}: {value} is not a positive number", "give 1 or more")


def _check_words(request: Request) -> None:
    """What goes into a scheduler's options is one word each."""
    if request.time and not _TIME.fullmatch(request.time):
        raise HvdError(
            f"--time: '{request.time}' is not hours, minutes and seconds",
            "write ten minutes as 0:10:00, on every machine",
        )
    for option in ("account", "queue", "job_name", "output", "error", "image", "rankfile"):
        if re.search(r"\s", getattr(request, option)):
            shown = option.replace("_", "-")
            raise HvdError(f"--{shown}: '{getattr(request, option)}' has blanks", "take them out")
    for name in request.variables:
        if not _VARIABLE.fullmatch(name):
            raise HvdError(f"--env: '{name}' is not the name of a variable", "--env NAME=VALUE")


def _check_ranks(request: Request) -> None:
    ranks, gpus = request.ranks_per_node, request.partition.gpus
    if not gpus or ranks <= gpus or request.use.operations == "cpu":
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
            "ask for fewer, or leave the job and get a larger one",
        )
    if not request.hosts:
        return
    if request.nodes > len(request.hosts):
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
    racks, aisles = request.racks, request.aisles
    if not racks and not aisles:
        return
    lsf = request.partition.lsf
    if lsf is None:
        raise HvdError(
            f"{request.site.name} has no racks to ask for", "leave --racks and --aisles out"
        )
    if not racks:
        raise HvdError("--aisles needs the number of racks in them", "add --racks")
    if lsf.nodes_per_rack and request.nodes > racks * lsf.nodes_per_rack:
        raise HvdError(
            f"{request.nodes} nodes are not on {racks} racks of {lsf.nodes_per_rack}",
            f"ask for {-(-request.nodes // lsf.nodes_per_rack)} racks or more",
        )


def nearest(word: str, choices: List[str]) -> str:
    """A remedy that names the choice next to ``word``, or all."""
    close = difflib.get_close_matches(word, choices, n=1)
    return f"did you mean '{close[0]}'?" if close else f"use one of {', '.join(choices)}"
