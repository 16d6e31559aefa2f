"""The schedulers: the options that ask each for nodes, and the hosts that it gives a job."""

from __future__ import annotations

import pathlib
import string
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from hvd.core.errors import HvdError
from hvd.launch.request import Request
from hvd.model.site import Partition, Site

#: How a site asks Slurm for GPUs on a node.
_GPUS = {"": "", "--gpus-per-node": "--gpus-per-node={}", "--gres": "--gres=gpu:{}"}


class Scheduler:
    """A machine without a scheduler; each scheduler overrides what it has."""

    title = "no scheduler"
    shell = "#!/bin/bash"  #: the first line of a batch script
    directive = ""  #: begins the line of an option in a batch script
    enter = ""  #: shell that goes where the job was submitted, unless a job starts there
    submit = ""  #: the command that takes a batch script
    account = ""  #: the option for the account to charge
    batch: Sequence[str] = ()  #: the options of a batch script, see :func:`fill`
    #: those of each command that gets nodes to type on
    interactive: Mapping[str, Sequence[str]] = {}

    def of_nodes(self, partition: Partition, queue: str = "") -> Dict[str, Any]:
        """Return the values of options that are the same for every job there.

        Args:
            queue: what the user asks for in place of the site's.
        """
        return {}

    def of_job(self, request: Request) -> Dict[str, Any]:
        """Return the values of other options, beside the request's own attributes."""
        return {}

    def hosts(self, partition: Partition, environ: Mapping[str, str]) -> Optional[List[str]]:
        """Return the compute nodes of the job that has ``environ``; None outside of a job.

        Raises:
            HvdError: the hosts cannot be read.
        """
        return None

    def first_host(self, partition: Partition) -> str:
        """Return shell for the host of rank 0, inside of a job."""
        return "localhost"

    def access(self, partition: Partition) -> List[str]:
        """Return those options of a batch script that every job there has."""
        return fill(self.batch, self.of_nodes(partition))

    def options(self, request: Request, command: str = "") -> List[str]:
        """Return the options of a batch script, or of an interactive ``command``.

        Raises:
            HvdError: the site's file does not say how to ask for these nodes.
        """
        values = {**vars(request), "ranks": request.ranks, **self.of_job(request)}
        values.update(self.of_nodes(request.partition, request.queue))
        return fill(self.interactive[command] if command else self.batch, values)

    def asked(self, request: Request, key: str) -> Any:
        """Return what the site's file says below ``key`` of the partition."""
        found = getattr(request.partition, key)
        if found is None:
            where = f"{request.site.name}: partition {request.partition.name}"
            raise HvdError(f"{where} has no {self.title} queue", f"add '{key}' to it in site.yaml")
        return found


class Slurm(Scheduler):
    title = "Slurm"
    directive = "#SBATCH"
    submit = "sbatch"
    account = "-A"
    batch = (
        *("-A {account}", "-C {constraint}", "-p {partition}", "-q {qos}", "-t {time}"),
        *("-N {nodes}", "-c {cpus}", "{tasks}", "{gpus}", "--mem-per-cpu={mem_per_cpu_mb}"),
        *("{head}", "-J {job_name}", "-o {output}", "-e {error}"),
    )
    interactive = {
        "salloc": (
            *("--nodes {nodes}", "--partition {partition}", "--qos {interactive_qos}"),
            *("--time {time}", "--constraint {constraint}", "{gpus}", "--account={account}"),
            *("{part_tasks}", "{part_cpus}", "--mem-per-cpu={mem_per_cpu_mb}", "{head}"),
        ),
        "srun": (
            *("-N {nodes}", "--ntasks-per-node={ranks_per_node}", "-p {partition}"),
            *("{interactive_gpus}", "--time={time}", "--account={account}", "--pty bash"),
        ),
        "idev": ("-p {partition}", "-N {nodes}", "-n {ranks}", "-m {minutes}", "-A {account}"),
    }

    def of_nodes(self, partition: Partition, queue: str = "") -> Dict[str, Any]:
        ask = partition.slurm
        # a queue is a QOS at sites with these
        name, qos = (ask.partition, queue or ask.qos) if ask.qos else (queue or ask.partition, "")
        values = {"constraint": ask.constraint, "partition": name, "qos": qos}
        return {**values, "mem_per_cpu_mb": ask.mem_per_cpu_mb, "head": ask.head}

    def of_job(self, request: Request) -> Dict[str, Any]:
        ask, interactive = request.partition.slurm, request.site.interactive
        gpus = _GPUS[ask.gpus].format(min(request.ranks_per_node, request.partition.gpus))
        own_qos = interactive.qos if interactive and not request.queue else ""
        by_job, by_node = f"-n {request.ranks}", f"--ntasks-per-node={request.ranks_per_node}"
        tasks = by_job if ask.tasks == "-n" else by_node
        cpus = request.partition.cpus(request.ranks_per_node)
        # where memory is counted by CPU a job gets a part of a node, and has to say which
        is_part = bool(ask.mem_per_cpu_mb)
        return {
            "cpus": cpus,
            "tasks": tasks,
            "part_tasks": tasks if is_part else "",
            "part_cpus": f"--cpus-per-task={cpus}" if is_part and cpus else "",
            "gpus": gpus,
            "minutes": _minutes(request.time),
            "interactive_qos": own_qos or self.of_nodes(request.partition, request.queue)["qos"],
            "interactive_gpus": gpus if interactive and interactive.gpus else "",
        }

    def hosts(self, partition: Partition, environ: Mapping[str, str]) -> Optional[List[str]]:
        nodes = environ.get("SLURM_JOB_NODELIST", "")
        return read_hosts(nodes, "SLURM_JOB_NODELIST", "is this a Slurm job?") if nodes else None

    def first_host(self, partition: Partition) -> str:
        return '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


class Lsf(Scheduler):
    title = "LSF"
    directive = "#BSUB"
    submit = "bsub"
    account = "-P"
    batch = (
        *("-P {account}", "-W {hours}", "{shape}", "-q {queue}"),
        *("-J {job_name}", "-o {output}", "-e {error}"),
    )
    interactive = {"bsub": ("-W {hours}", "-nnodes {nodes}", "-P {account}", "-Is /bin/bash")}

    def of_nodes(self, partition: Partition, queue: str = "") -> Dict[str, Any]:
        return {"queue": queue or partition.lsf.queue} if partition.lsf else {}

    def of_job(self, request: Request) -> Dict[str, Any]:
        lsf = self.asked(request, "lsf")
        hours, minutes = divmod(_minutes(request.time), 60)
        shape = [f"-nnodes {request.nodes}"]
        if request.racks:
            # whole racks are reserved in expert mode, which does not take -nnodes
            slots = request.nodes * lsf.slots
            kind = "select[(({})&&(type==any))]order[r15s:pg]"
            launch = f"{kind.format('LN')}span[hosts=1]cu[type=rack:pref=config]"
            racks = f"cu[type=rack:maxcus={request.racks}]"
            compute = f"{kind.format('CN')}span[ptile={lsf.slots}]{racks}"
            terms = f"{lsf.launch_slots}*{{{launch}}}+{slots}*{{{compute}}}"
            shape = ["-csm y", f"-n {lsf.launch_slots + slots}", f'-R "{terms}"']
        return {"hours": f"{hours}:{minutes:02d}" if request.time else "", "shape": shape}

    def hosts(self, partition: Partition, environ: Mapping[str, str]) -> Optional[List[str]]:
        file = environ.get("LSB_DJOB_HOSTFILE", "")
        # the hosts with their slots: a line for each slot, or the number behind each host
        slots = environ.get("LSB_MCPU_HOSTS", "").split()[::2]
        if file:
            slots = _host_file(file, "LSB_DJOB_HOSTFILE", "start inside the LSF job")
        if not slots:
            return None
        if partition.lsf and partition.lsf.launch_slots:
            # the first host only runs the script
            slots = [host for host in slots if host != slots[0]]
        return read_hosts(",".join(slots), "the hosts of the job", "start inside the LSF job")

    def first_host(self, partition: Partition) -> str:
        # the first host only runs the script where there is a launch node
        number = 2 if partition.lsf and partition.lsf.launch_slots else 1
        return f'$(uniq "$LSB_DJOB_HOSTFILE" | sed -n {number}p)'


class Pbs(Scheduler):
    title = "PBS"
    # a login shell: others do not have the module command in a job
    shell = "#!/bin/bash -l"
    directive = "#PBS"
    enter = 'cd "$PBS_O_WORKDIR"'
    submit = "qsub"
    account = "-A"
    batch = (
        *("-A {account}", "-q {queue}", "-l select={select}", "-l place={place}"),
        *("-l walltime={time}", "-l {resources}", "-N {job_name}", "-o {output}", "-e {error}"),
    )
    interactive = {
        "qsub": (
            *("-I", "-l select={select}", "-l place={place}", "-l {resources}"),
            *("-l walltime={time}", "-q {queue}", "-A {account}"),
        )
    }

    def of_nodes(self, partition: Partition, queue: str = "") -> Dict[str, Any]:
        pbs = partition.pbs
        return {**vars(pbs), "queue": queue or pbs.queue} if pbs else {}

    def of_job(self, request: Request) -> Dict[str, Any]:
        pbs = self.asked(request, "pbs")
        return {"select": ":".join(filter(None, (str(request.nodes), pbs.chunk)))}

    def access(self, partition: Partition) -> List[str]:
        # ReFrame puts what begins with no dash behind the number of nodes
        chunk = partition.pbs.chunk if partition.pbs else ""
        return [chunk] * bool(chunk) + super().access(partition)

    def hosts(self, partition: Partition, environ: Mapping[str, str]) -> Optional[List[str]]:
        file = environ.get("PBS_NODEFILE", "")
        if not file:
            return None
        hint = "start inside the PBS job"
        return read_hosts(",".join(_host_file(file, "PBS_NODEFILE", hint)), "PBS_NODEFILE", hint)

    def first_host(self, partition: Partition) -> str:
        return '$(head -n 1 "$PBS_NODEFILE")'


SCHEDULERS = {"slurm": Slurm(), "lsf": Lsf(), "pbs": Pbs(), "none": Scheduler()}


def of(machine: Site) -> Scheduler:
    """Return the site's scheduler."""
    return SCHEDULERS[machine.scheduler]


def slurm_gpu_option(partition: Partition) -> str:
    """Return the option that asks Slurm for {} GPUs; empty if none is needed."""
    return _GPUS[partition.slurm.gpus]


def fill(options: Sequence[str], values: Mapping[str, Any]) -> List[str]:
    """Return ``options`` with their values; those that have none are left out.

    Args:
        options: such as "-A {account}", with one name or none.
        values: by name; a list has the values for several options.
    """
    found: List[str] = []
    for option in options:
        names = [name for _, name, _, _ in string.Formatter().parse(option) if name]
        value = values.get(names[0]) if names else "always"
        for each in value if isinstance(value, (list, tuple)) else [value]:
            found += [option.format(**{name: each for name in names})] if each else []
    return found


def read_hosts(text: str, origin: str, hint: str) -> List[str]:
    """Return the hosts of ``text``, which is from ``origin``, in order and each once.

    Raises:
        HvdError: it is no list of hosts.
    """
    try:
        return list(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise HvdError(f"{origin}: '{text}': {error}", hint) from error


def named_hosts(text: str) -> List[str]:
    """Return the hosts that ``--hosts`` names, such as ``server[1-4]``.

    Raises:
        HvdError: ``text`` is no list of hosts.
    """
    hint = "for example: --hosts 'server[1-4]'; ranks are asked for with --ranks-per-node"
    found = read_hosts(text, "--hosts", hint)
    if not found or any(set(host) & set(": \t\n@") for host in found):
        raise HvdError(f"--hosts: '{text}' is not a list of hosts", hint)
    return found


def _host_file(file: str, origin: str, hint: str) -> List[str]:
    """Return the lines of a job's file of hosts, one for each slot.

    Raises:
        HvdError: it cannot be read.
    """
    try:
        return pathlib.Path(file).read_text().split()
    except OSError as error:
        raise HvdError(f"{origin}: {file}: {error.strerror}", hint) from error


def _minutes(time: str) -> int:
    """Return the minutes of H:MM:SS; one that has begun counts."""
    hours, minutes, seconds = map(int, (time or "0:00:00").split(":"))
    return hours * 60 + minutes + bool(seconds)
