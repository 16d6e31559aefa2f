"""The launch methods: each turns a request into the words of a command line."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shlex
from typing import Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from hvd.core.errors import HvdError, nearest
from hvd.launch import schedulers
from hvd.launch.request import Request
from hvd.model import environment
from hvd.model.site import Partition, Pin

#: The command line up to the program.  The second argument is True for a batch script, which has
#: asked for nodes and ranks already.  Raises HvdError for what the method cannot do.
Words = Callable[[Request, bool], List[str]]


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to start ranks."""

    name: str
    words: Words
    scheduler: str = ""  #: the one that it belongs to; empty for any
    operations: str = ""  #: what has to carry Horovod's operations; empty for anything
    takes: Tuple[str, ...] = ()  #: options of ./hvd launch that only some methods take
    needs_hosts: bool = False  #: it cannot find out the hosts of the job
    forwards: bool = False  #: its command line has the variables for the ranks
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: that it needs


METHODS: Dict[str, Method] = {}

#: Sets torch.distributed's variables on one rank, and becomes the program.
TORCH_RANK = pathlib.Path(__file__).resolve().with_name("torch-rank")
#: Gives one rank its GPU, and becomes the program.
GPU_RANK = TORCH_RANK.with_name("gpu-rank")


def _method(name: str, **properties: object) -> Callable[[Words], Words]:
    def register(words: Words) -> Words:
        METHODS[name] = Method(name, words, **properties)
        return words

    return register


# the ranks that are left would wait for the one that has died until the job's time is over,
# unless the machine's Slurm is configured otherwise: man srun, --kill-on-bad-exit
@_method("srun", scheduler="slurm", variables={"SLURM_KILL_BAD_EXIT": "1"})
def _srun(request: Request, script: bool) -> List[str]:
    words = ["srun", *_filled(request, request.settings.options)]
    container: List[str] = []
    if request.image:
        shifter = request.settings.shifter
        words += shifter["options"]
        modules = ",".join(shifter["modules"])
        container = ["shifter", f"--module={modules}", f"--image={request.image}"]
    if not script:
        words += [] if request.fills_job else ["-N", str(request.nodes)]
        words += ["-n", str(request.ranks)]
    return words + _filled(request, request.partition.slurm.step) + container


@_method("mpirun", takes=("hosts",), forwards=True)
def _mpirun(request: Request, script: bool) -> List[str]:
    """Open MPI's, which gets the hosts of a Slurm job from Slurm."""
    settings = request.settings
    words = ["mpirun", "-np", str(request.ranks), *_hosts_option(request, request.hosts)]
    words += [*_filled(request, settings.options), *_forwarded(request), *settings.transport]
    return words + ([] if request.rdma else list(settings.without_rdma or ()))


@_method("horovodrun", takes=("hosts", "gloo"), needs_hosts=True)
def _horovodrun(request: Request, script: bool) -> List[str]:
    words = ["horovodrun"] + ["--gloo"] * request.gloo
    hosts = request.hosts or request.job or ()
    return [*words, "-np", str(request.ranks), *_hosts_option(request, hosts)]


@_method("jsrun", scheduler="lsf", takes=("smpiargs",))
def _jsrun(request: Request, script: bool) -> List[str]:
    """IBM's for LSF: one resource set on each host, so that a rank sees all GPUs there."""
    ranks, cores = request.ranks_per_node, request.partition.cpus_per_rank
    options = {
        "r": "-r1",
        "g": f"-g{ranks}",
        "a": f"-a{ranks}",
        "c": f"-c{ranks * cores}",
        "b": f"-bpacked:{cores}",
    }
    part = request.job is not None and not request.fills_job
    words = ["jsrun"] + [f"-n{request.nodes}"] * part
    words += [options[key] for key in request.settings.order["script" if script else "line"]]
    return words + ([f"--smpiargs={request.smpiargs}"] if request.smpiargs else [])


@_method("ddlrun", scheduler="lsf", operations="ddl")
def _ddlrun(request: Request, script: bool) -> List[str]:
    """IBM DDL's, which finds hosts and GPUs itself and is told how they are wired."""
    if request.ranks_per_node != request.partition.gpus:
        raise HvdError(
            "ddlrun starts a rank on every GPU",
            f"leave --ranks-per-node out, or give {request.partition.gpus}",
        )
    if not request.racks:
        return ["ddlrun"]
    nodes, racks, aisles = _shape(request)
    words = ["ddlrun", "--nodes", str(nodes), "--racks", str(racks)]
    return words + (["--aisles", str(aisles)] if request.aisles else [])


@_method(
    "ddl-mpirun",
    scheduler="lsf",
    operations="ddl",
    takes=("hosts", "rankfile"),
    needs_hosts=True,
    forwards=True,
)
def _ddl_mpirun(request: Request, script: bool) -> List[str]:
    """The mpirun that ddlrun prints and starts; ranks are dealt round the hosts."""
    hosts = (request.hosts or request.job or ())[: request.nodes]
    if not hosts or not request.rankfile:
        raise HvdError(
            "ddl-mpirun needs the hosts and the file that says which rank is where",
            "give --rankfile, and --hosts outside of a job; or use ddlrun",
        )
    total = str(request.ranks)
    shape = "x".join(map(str, (request.ranks_per_node, *_shape(request))))
    ranks = {
        host: ",".join(map(str, range(first, request.ranks, len(hosts))))
        for first, host in enumerate(hosts)
    }
    listed = ";".join(f"{host}:{numbers}" for host, numbers in ranks.items())
    return [
        *("mpirun", *_forwarded(request), *_filled(request, request.settings.options)),
        *("--rankfile", request.rankfile),
        # ddlrun ends the value with a blank
        *("-x", f"DDL_OPTIONS=-mode p:{shape} ", "-n", total),
        *("-mca", "plm_rsh_num_concurrent", total),
        *("-x", "DDL_HOST_PORT=2200", "-x", f"DDL_HOST_LIST={listed}"),
    ]


@_method("mpiexec.hydra")
def _hydra(request: Request, script: bool) -> List[str]:
    """Intel MPI's, which gets the hosts of a Slurm job from Slurm."""
    words = ["mpiexec.hydra", *_filled(request, request.settings.options)]
    words += ["-ppn", str(request.ranks_per_node), "-n", str(request.ranks)]
    pin = request.partition.pin
    if pin and request.ranks_per_node == 1:
        words += ["taskset", "-c", _cpus(request.partition, pin)]
    return words + (["numactl", "-p", str(pin.numa)] if pin else [])


@_method("mpiexec", scheduler="pbs")
def _pals(request: Request, script: bool) -> List[str]:
    """That of HPE PALS, which gets the hosts of a PBS job from PBS."""
    words = ["mpiexec", "-n", str(request.ranks), "--ppn", str(request.ranks_per_node)]
    return words + _filled(request, request.settings.options)


@_method("ibrun", scheduler="slurm")
def _ibrun(request: Request, script: bool) -> List[str]:
    """TACC's, which gets nodes and ranks from the job."""
    return ["ibrun"] if script else ["ibrun", "-n", str(request.ranks)]


def choose(request: Request) -> Method:
    """Return the method of ``request``.

    Raises:
        HvdError: there is none of that name, or the site does not have it, or it cannot do what is
            asked.
    """
    if request.method not in METHODS:
        hint = nearest(request.method, METHODS)
        raise HvdError(f"no launch method is called '{request.method}'", hint)
    method = METHODS[request.method]
    for reason, hint in _problems(request, method):
        raise HvdError(reason, hint)
    return method


def _problems(request: Request, method: Method) -> Iterator[Tuple[str, str]]:
    """Yield each reason why ``method`` cannot do what is asked, and a hint."""
    site, name = request.site, request.environment
    instead = f"use {' or '.join(site.allowed)}"
    if method.scheduler and method.scheduler != site.scheduler:
        has = schedulers.of(site).title
        yield f"{method.name} is for another kind of machine: {site.name} has {has}", instead
    if method.name not in site.allowed:
        why = site.refused.get(method.name, "the site does not have it")
        yield f"{method.name} on {site.name}: {why}", instead
    if method.operations not in ("", request.use.operations):
        yield f"{method.name} is for IBM DDL, which {name} is without", instead
    taken = {
        *method.takes,
        "" if request.settings.without_rdma is None else "rdma",
        "image" if request.settings.shifter else "",
    }
    for option, (reason, hint) in _OPTIONS.items():
        if getattr(request, option) and option not in taken:
            yield f"--{option}: {reason.format(method=method.name, site=site.name)}", hint
    if request.gloo and environment.load(name).root.variants.get("gloo") is False:
        yield f"--gloo: {name} is built without Gloo (~gloo)", "leave --gloo out"


#: Option of ./hvd launch: why a method does not take it, and a hint.
_OPTIONS = {
    "gloo": (
        "{method} starts MPI's ranks, and Gloo's need an address to meet at",
        "leave --gloo out, or use --via horovodrun where the site allows it",
    ),
    "hosts": ("{method} gets its hosts from the job", "leave it out; use --nodes for fewer"),
    "rdma": ("{method} on {site} has no form of its own for it", "leave it out"),
    "image": ("{site} starts no containers with {method}", "leave it out"),
    "smpiargs": ("this is an option of jsrun, not of {method}", "leave it out"),
    "rankfile": ("this is an option of ddl-mpirun, not of {method}", "leave it out"),
}


def variables(request: Request) -> Dict[str, str]:
    """Return the variables that the launcher needs; see `choose` for errors."""
    method = choose(request)
    cpus = request.partition.cpus(request.ranks_per_node)
    # from Slurm 22.05 on, srun does not take the job's -c, and a rank would have one CPU
    own = {"SRUN_CPUS_PER_TASK": str(cpus)} if method.name == "srun" and cpus else {}
    return {**method.variables, **own}


def line(request: Request) -> List[str]:
    """Return all words of the command line for here and now, launcher and program.

    Raises:
        HvdError: the launch is impossible.
    """
    method = choose(request)
    check_hosts(request)
    return [*method.words(request, False), *on_rank(request), *request.program]


def check_hosts(request: Request) -> None:
    """Refuse a launch that cannot know its hosts.

    Raises:
        HvdError: the launch needs ``--hosts``.
    """
    method = choose(request)
    from_job = request.site.scheduler != "none" and not method.needs_hosts
    known = request.hosts or request.job or from_job
    if "hosts" in method.takes and request.nodes > 1 and not known:
        raise HvdError(
            f"{method.name} needs to know the {request.nodes} hosts",
            "name them, for example --hosts 'server[1-4]', or start it inside a job",
        )


def prefix(request: Request) -> Dict[str, str]:
    """Return the user's variables that go in front of the command line."""
    return {} if choose(request).forwards else dict(request.variables)


def quoted(request: Request, script: bool = False, options: Sequence[str] = ()) -> str:
    """Return the command line for a shell, with the user's variables in front of it.

    Args:
        script: it is for a batch script.
        options: go before the launcher's own.
    """
    launcher, *words = [*choose(request).words(request, script), *on_rank(request)]
    text = [f"{name}={shlex.quote(value)}" for name, value in prefix(request).items()]
    if request.torch and not script:
        text = [f"MASTER_ADDR={first_host(request)}", *text]
    return " ".join([*text, shlex.join([launcher, *options, *words]), program(request)])


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
    return schedulers.of(request.site).first_host(request.partition)


def on_rank(request: Request) -> List[str]:
    """Return what is in front of the program on each rank, to set variables there."""
    words: List[str] = []
    gpu = request.partition.rank_gpu
    if gpu and request.use.operations != "cpu":
        words += [str(GPU_RANK), gpu.variable, gpu.local_rank, ",".join(map(str, gpu.order))]
    return words + [str(TORCH_RANK)] * request.torch


def _filled(request: Request, words: Sequence[str]) -> List[str]:
    """Return ``words`` of the site's file with the numbers of this request."""
    ranks = request.ranks_per_node
    values = {"ranks_per_node": ranks, "cpus_per_rank": request.partition.cpus(ranks)}
    return [word.format(**values) for word in words]


def _hosts_option(request: Request, hosts: Sequence[str]) -> List[str]:
    """Return ``-H``, with a slot for each rank."""
    slots = [f"{host}:{request.ranks_per_node}" for host in hosts[: request.nodes]]
    return ["-H", ",".join(slots)] if slots else []


def _forwarded(request: Request) -> List[str]:
    """Return ``-x`` for each variable that the ranks are to have."""
    values = {**request.fabric, **request.variables}
    meeting = ["MASTER_ADDR"] if request.torch and "MASTER_ADDR" not in values else []
    other_cases = set(request.site.known_variables()) - set(values)
    options = [
        f"{name}={values[name]}" if name in values else name
        for name in [*request.settings.forward, *meeting, *values]
        if name not in other_cases
    ]
    return [word for option in dict.fromkeys(options) for word in ("-x", option)]


def _shape(request: Request) -> Tuple[int, int, int]:
    """Return nodes per rack, racks per aisle, aisles.

    Raises:
        HvdError: a division leaves a remainder.
    """
    racks, aisles = request.racks or 1, request.aisles or 1
    if request.nodes % racks or racks % aisles:
        raise HvdError(
            f"{request.nodes} nodes are not the same number on each of {racks} racks in "
            f"{aisles} aisles",
            "choose numbers that divide: DDL needs as many nodes on every rack",
        )
    return request.nodes // racks, racks // aisles, aisles


def _cpus(partition: Partition, pin: Pin) -> str:
    """Return the hardware threads of the rank's cores; thread 0 of all cores is counted first."""
    firsts = range(0, partition.cores * partition.threads_per_core, partition.cores)
    return ",".join(f"{first}-{first + pin.cores - 1}" for first in firsts)
