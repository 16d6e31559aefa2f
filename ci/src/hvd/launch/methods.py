"""The launch methods: each makes the words of a command line out of a request."""

from __future__ import annotations

import re
import shlex
from typing import Dict, List, Mapping, Sequence, Tuple

from hvd.core.errors import HvdError
from hvd.launch.request import Request, nearest
from hvd.model.site import Partition, Pin


class Method:
    """A way to start ranks.

    Attributes:
        name: what --via takes.
        scheduler: the scheduler that it belongs to; empty for any.
        operations: what Horovod's operations must be over; empty for anything.
        takes_hosts: whether it takes a list of hosts.
        needs_hosts: whether it needs one to reach a second node.
        takes_gloo: whether it can give Horovod's Gloo controller what that needs.
        forwards: whether its command line has the environment variables for the ranks.
        variables: environment variables of its own that a job needs.
    """

    name = ""
    scheduler = ""
    operations = ""
    takes_hosts = False
    needs_hosts = False
    takes_gloo = False
    forwards = False
    variables: Mapping[str, str] = {}

    def words(self, request: Request, script: bool) -> List[str]:
        """The command line up to the program.

        Args:
            script: whether it is for a batch script, which has asked for nodes and ranks.

        Raises:
            HvdError: the method cannot do what is asked.
        """
        raise NotImplementedError


class Srun(Method):
    """Slurm's own, also for a Shifter container."""

    name = "srun"
    scheduler = "slurm"
    # the ranks that are left would wait for the one that has died until the job's time is over,
    # unless the machine's Slurm is configured otherwise: man srun, --kill-on-bad-exit
    variables = {"SLURM_KILL_BAD_EXIT": "1"}

    def words(self, request: Request, script: bool) -> List[str]:
        words = ["srun", *request.settings.options]
        container: List[str] = []
        if request.image:
            shifter = request.settings.shifter or {}
            words += shifter["options"]
            modules = ",".join(shifter["modules"])
            container = ["shifter", f"--module={modules}", f"--image={request.image}"]
        if not script:
            words += [] if request.fills_job else ["-N", str(request.nodes)]
            words += ["-n", str(request.ranks)]
        cpus = request.partition.cpus_per_rank
        words += [word.format(cpus_per_rank=cpus) for word in request.partition.slurm.step]
        return words + container


class Mpirun(Method):
    """Open MPI's, which takes the hosts of a Slurm job from Slurm."""

    name = "mpirun"
    takes_hosts = True
    forwards = True

    def words(self, request: Request, script: bool) -> List[str]:
        settings = request.settings
        words = ["mpirun", "-np", str(request.ranks), *_hosts_option(request, request.hosts)]
        words += [*settings.options, *_forwarded(request), *settings.transport]
        return words + ([] if request.rdma else list(settings.without_rdma or ()))


class Horovodrun(Method):
    """Horovod's, over MPI or Gloo."""

    name = "horovodrun"
    takes_hosts = True
    needs_hosts = True
    takes_gloo = True

    def words(self, request: Request, script: bool) -> List[str]:
        hosts = request.hosts or (request.job or ())[: request.nodes]
        words = ["horovodrun"] + ["--gloo"] * request.gloo
        return [*words, "-np", str(request.ranks), *_hosts_option(request, hosts)]


class Jsrun(Method):
    """IBM's for LSF: one resource set on each host, so that a rank sees all GPUs there."""

    name = "jsrun"
    scheduler = "lsf"

    def words(self, request: Request, script: bool) -> List[str]:
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


class Ddlrun(Method):
    """IBM DDL's, which finds hosts and GPUs itself and is told how they are wired."""

    name = "ddlrun"
    scheduler = "lsf"
    operations = "ddl"

    def words(self, request: Request, script: bool) -> List[str]:
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


class DdlMpirun(Method):
    """The mpirun that ddlrun starts, as it says; the ranks go round the hosts."""

    name = "ddl-mpirun"
    scheduler = "lsf"
    operations = "ddl"
    takes_hosts = True
    needs_hosts = True
    forwards = True

    def words(self, request: Request, script: bool) -> List[str]:
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
            *("mpirun", *_forwarded(request), *request.settings.options),
            *("--rankfile", request.rankfile),
            # ddlrun ends the value with a blank
            *("-x", f"DDL_OPTIONS=-mode p:{shape} ", "-n", total),
            *("-mca", "plm_rsh_num_concurrent", total),
            *("-x", "DDL_HOST_PORT=2200", "-x", f"DDL_HOST_LIST={listed}"),
        ]


class Hydra(Method):
    """Intel MPI's, which takes the hosts of a Slurm job from Slurm."""

    name = "mpiexec.hydra"

    def words(self, request: Request, script: bool) -> List[str]:
        words = ["mpiexec.hydra", *request.settings.options]
        words += ["-ppn", str(request.ranks_per_node), "-n", str(request.ranks)]
        pin = request.partition.pin
        if pin is None:
            return words
        if request.ranks_per_node == 1:
            words += ["taskset", "-c", _cpus(request.partition, pin)]
        return [*words, "numactl", "-p", str(pin.numa)]


class Ibrun(Method):
    """TACC's, which takes nodes and ranks from the job."""

    name = "ibrun"
    scheduler = "slurm"

    def words(self, request: Request, script: bool) -> List[str]:
        return ["ibrun"] if script else ["ibrun", "-n", str(request.ranks)]


METHODS = {
    method.name: method
    for method in (
        *(Srun(), Mpirun(), Horovodrun(), Jsrun()),
        *(Ddlrun(), DdlMpirun(), Hydra(), Ibrun()),
    )
}


def choose(request: Request) -> Method:
    """The method of ``request``, which the site has and which can do what is asked.

    Raises:
        HvdError: the reason why not.
    """
    method = METHODS.get(request.method)
    if method is None:
        raise HvdError(
            f"no launch method is called '{request.method}'",
            nearest(request.method, list(METHODS)),
        )
    _check_site(request, method)
    _check_options(request, method)
    return method


def line(request: Request) -> List[str]:
    """All words of the command line, launcher and program, for now and here.

    Raises:
        HvdError: the launch is impossible.
    """
    method = choose(request)
    check_hosts(request)
    return [*method.words(request, script=False), *request.program]


def check_hosts(request: Request) -> None:
    """Refuse a launch that cannot know its hosts.

    Raises:
        HvdError: that is so.
    """
    method = choose(request)
    from_job = request.site.scheduler != "none" and not method.needs_hosts
    known = request.hosts or request.job or from_job
    if method.takes_hosts and request.nodes > 1 and not known:
        raise HvdError(
            f"{method.name} needs to know the {request.nodes} hosts",
            "name them, for example --hosts 'server[1-4]', or start it inside a job",
        )


def prefix(request: Request) -> Dict[str, str]:
    """The user's variables that go in front of the command line."""
    return {} if choose(request).forwards else dict(request.variables)


def quoted(request: Request, script: bool = False, options: Sequence[str] = ()) -> str:
    """The command line for a shell, with the user's variables in front of it.

    Args:
        options: further ones for the launcher, its first.
    """
    launcher, *words = choose(request).words(request, script)
    text = [f"{name}={shlex.quote(value)}" for name, value in prefix(request).items()]
    text += [shlex.quote(word) for word in (launcher, *options, *words)]
    return " ".join([*text, program(request)])


def program(request: Request) -> str:
    """The program's words for a shell; $NAME stands for itself, unless it is to be expanded."""
    return " ".join(
        '"' + re.sub(r'(["`\\])', r"\\\1", word) + '"'
        if request.expand and "$" in word
        else shlex.quote(word)
        for word in request.program
    )


def _check_site(request: Request, method: Method) -> None:
    site = request.site
    allowed = " or ".join(site.allowed)
    if method.scheduler and method.scheduler != site.scheduler:
        has = {"none": "no scheduler", "slurm": "Slurm", "lsf": "LSF"}[site.scheduler]
        raise HvdError(
            f"{method.name} is for another kind of machine: {site.name} has {has}",
            f"use {allowed}",
        )
    if method.name not in site.allowed:
        reason = site.refused.get(method.name, "the site does not have it")
        raise HvdError(f"{method.name} on {site.name}: {reason}", f"use {allowed}")
    if method.operations and method.operations != request.use.operations:
        raise HvdError(
            f"{method.name} is for IBM DDL, which {request.environment} is without",
            f"use {allowed}",
        )


def _check_options(request: Request, method: Method) -> None:
    name = method.name
    if request.gloo and not method.takes_gloo:
        raise HvdError(
            f"--gloo: {name} starts MPI's ranks, and Gloo's need an address to meet at",
            "leave --gloo out, or use --via horovodrun where the site allows it",
        )
    if request.hosts and not method.takes_hosts:
        raise HvdError(
            f"--hosts: {name} takes its hosts from the job", "leave it out; use --nodes for fewer"
        )
    if request.rdma and request.settings.without_rdma is None:
        raise HvdError(
            f"--rdma: {name} on {request.site.name} has no form of its own for it",
            "leave it out",
        )
    if request.image and not request.settings.shifter:
        raise HvdError(
            f"--image: {request.site.name} starts no containers with {name}", "leave it out"
        )
    if request.smpiargs and name != "jsrun":
        raise HvdError(f"--smpiargs is an option of jsrun, not of {name}", "leave it out")
    if request.rankfile and name != "ddl-mpirun":
        raise HvdError(f"--rankfile is an option of ddl-mpirun, not of {name}", "leave it out")


def _hosts_option(request: Request, hosts: Sequence[str]) -> List[str]:
    """``-H``, with a slot for each rank."""
    slots = [f"{host}:{request.ranks_per_node}" for host in hosts[: request.nodes]]
    return ["-H", ",".join(slots)] if slots else []


def _forwarded(request: Request) -> List[str]:
    """``-x`` for each variable that the ranks are to have."""
    values = {**request.fabric, **request.variables}
    cases = set(request.site.known_variables())
    words: List[str] = []
    for name in [*request.settings.forward, *values]:
        option = ["-x", f"{name}={values[name]}" if name in values else name]
        # what only other cases have a value for is not for this one
        if (name in values or name not in cases) and option[1] not in words:
            words += option
    return words


def _shape(request: Request) -> Tuple[int, int, int]:
    """Nodes on a rack, racks in an aisle, aisles.

    Raises:
        HvdError: the nodes do not come out even.
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
    """The hardware threads of the rank's cores; thread 0 of all cores is counted first."""
    firsts = range(0, partition.cores * partition.threads_per_core, partition.cores)
    return ",".join(f"{first}-{first + pin.cores - 1}" for first in firsts)
