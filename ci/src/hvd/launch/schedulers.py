"""The schedulers: the options that ask each for nodes, and the hosts that it gives a job."""

from __future__ import annotations

import pathlib
from typing import Dict, List, Mapping, Optional, Tuple

from hvd.core.errors import HvdError
from hvd.launch import hosts
from hvd.launch.request import Request
from hvd.model.site import Partition, Site


class Scheduler:
    """A machine without a scheduler; each scheduler overrides what it has.

    Attributes:
        title: its name.
        directive: what begins the line of an option in a batch script.
        submit: the command that takes a batch script.
        account: the option for the account to charge.
    """

    title = "no scheduler"
    directive = ""
    submit = ""
    account = ""

    def options(self, request: Request) -> List[str]:
        """Return the options of the job, in the order of a batch script.

        Raises:
            HvdError: the site's file does not say how to ask for these nodes.
        """
        return []

    def access(self, partition: Partition) -> List[str]:
        """Return those options that every job on nodes of ``partition`` has."""
        return []

    def interactive(self, request: Request) -> Dict[str, List[str]]:
        """Return the options of each command that gets nodes to type on."""
        return {}

    def job(self, partition: Partition, environ: Mapping[str, str]) -> Optional[List[str]]:
        """Return the compute nodes of the job that has ``environ``; None outside of a job.

        Raises:
            HvdError: the hosts cannot be read.
        """
        return None


class Slurm(Scheduler):
    title = "Slurm"
    directive = "#SBATCH"
    submit = "sbatch"
    account = "-A"

    def options(self, request: Request) -> List[str]:
        by_node = request.partition.slurm.tasks != "-n"
        return [
            *given(("-A {}", request.account)),
            *_slurm_nodes(request.partition, request.queue),
            *given(
                ("-t {}", request.time),
                ("-N {}", request.nodes),
                ("-c {}", request.partition.cpus_per_rank),
                ("--ntasks-per-node={}", request.ranks_per_node if by_node else 0),
                ("-n {}", 0 if by_node else request.ranks),
                _slurm_gpus(request),
            ),
            *_slurm_memory(request.partition),
            *_files(request),
        ]

    def access(self, partition: Partition) -> List[str]:
        return [*_slurm_nodes(partition), *_slurm_memory(partition)]

    def interactive(self, request: Request) -> Dict[str, List[str]]:
        settings = request.site.interactive
        partition, qos = _slurm_queue(request.partition, request.queue)
        if settings.qos and not request.queue:
            qos = settings.qos
        return {
            "salloc": given(
                ("--nodes {}", request.nodes),
                ("--partition {}", partition),
                ("--qos {}", qos),
                ("--time {}", request.time),
                ("--constraint {}", request.partition.slurm.constraint),
                _slurm_gpus(request),
                ("--account={}", request.account),
            ),
            "srun": given(
                ("-N {}", request.nodes),
                ("--ntasks-per-node={}", request.ranks_per_node),
                ("-p {}", partition),
                _slurm_gpus(request) if settings.gpus else ("", 0),
                ("--time={}", request.time),
                ("--account={}", request.account),
                ("--pty {}", "bash"),
            ),
            "idev": given(
                ("-p {}", partition),
                ("-N {}", request.nodes),
                ("-n {}", request.ranks),
                ("-m {}", _minutes(request.time)),
                ("-A {}", request.account),
            ),
        }

    def job(self, partition: Partition, environ: Mapping[str, str]) -> Optional[List[str]]:
        nodes = environ.get("SLURM_JOB_NODELIST", "")
        return hosts.read(nodes, "SLURM_JOB_NODELIST", "is this a Slurm job?") if nodes else None


class Lsf(Scheduler):
    title = "LSF"
    directive = "#BSUB"
    submit = "bsub"
    account = "-P"

    def options(self, request: Request) -> List[str]:
        lsf = request.partition.lsf
        if lsf is None:
            raise HvdError(
                f"{request.site.name}: partition {request.partition.name} has no LSF queue",
                "add 'lsf' to it in site.yaml",
            )
        nodes = _lsf_racks(request) if request.racks else [f"-nnodes {request.nodes}"]
        return [
            *given(("-P {}", request.account), ("-W {}", _hours(request.time))),
            *nodes,
            f"-q {request.queue or lsf.queue}",
            *_files(request),
        ]

    def access(self, partition: Partition) -> List[str]:
        return [f"-q {partition.lsf.queue}"] if partition.lsf else []

    def interactive(self, request: Request) -> Dict[str, List[str]]:
        return {
            "bsub": given(
                ("-W {}", _hours(request.time)),
                ("-nnodes {}", request.nodes),
                ("-P {}", request.account),
                ("-Is {}", "/bin/bash"),
            )
        }

    def job(self, partition: Partition, environ: Mapping[str, str]) -> Optional[List[str]]:
        file = environ.get("LSB_DJOB_HOSTFILE", "")
        # the hosts with their slots: a line for each slot, or the number behind each host
        slots = environ.get("LSB_MCPU_HOSTS", "").split()[::2]
        if file:
            try:
                slots = pathlib.Path(file).read_text().split()
            except OSError as error:
                raise HvdError(
                    f"LSB_DJOB_HOSTFILE: {file}: {error.strerror}", "start inside the LSF job"
                ) from error
        if not slots:
            return None
        if partition.lsf and partition.lsf.launch_slots:
            # the first host only runs the script
            slots = [host for host in slots if host != slots[0]]
        return hosts.read(",".join(slots), "the hosts of the job", "start inside the LSF job")


SCHEDULERS = {"slurm": Slurm(), "lsf": Lsf(), "none": Scheduler()}


def of(machine: Site) -> Scheduler:
    """Return the site's scheduler."""
    return SCHEDULERS[machine.scheduler]


def given(*options: Tuple[str, object]) -> List[str]:
    """Return the options that have a value, with the value in place of ``{}``."""
    return [form.format(value) for form, value in options if form and value]


def slurm_gpu_option(partition: Partition) -> str:
    """Return the option that asks Slurm for {} GPUs; empty where none is needed."""
    forms = {"--gpus-per-node": "--gpus-per-node={}", "--gres": "--gres=gpu:{}"}
    return forms.get(partition.slurm.gpus, "")


def _slurm_gpus(request: Request) -> Tuple[str, int]:
    """As many GPUs as ranks, but no more than there are."""
    count = min(request.ranks_per_node, request.partition.gpus)
    return slurm_gpu_option(request.partition), count


def _slurm_nodes(partition: Partition, queue: str = "") -> List[str]:
    name, qos = _slurm_queue(partition, queue)
    return given(("-C {}", partition.slurm.constraint), ("-p {}", name), ("-q {}", qos))


def _slurm_memory(partition: Partition) -> List[str]:
    ask = partition.slurm
    return [*given(("--mem-per-cpu={}", ask.mem_per_cpu_mb)), *ask.head]


def _slurm_queue(partition: Partition, queue: str) -> Tuple[str, str]:
    """Return partition and QOS; ``queue`` replaces the QOS if the site has one."""
    ask = partition.slurm
    return (ask.partition, queue or ask.qos) if ask.qos else (queue or ask.partition, "")


def _lsf_racks(request: Request) -> List[str]:
    """Reserve whole racks, which LSF takes in expert mode alone, without -nnodes."""
    lsf = request.partition.lsf
    slots = request.nodes * lsf.slots
    kind = "select[(({})&&(type==any))]order[r15s:pg]"
    launch = f"{kind.format('LN')}span[hosts=1]cu[type=rack:pref=config]"
    compute = f"{kind.format('CN')}span[ptile={lsf.slots}]cu[type=rack:maxcus={request.racks}]"
    terms = f"{lsf.launch_slots}*{{{launch}}}+{slots}*{{{compute}}}"
    return ["-csm y", f"-n {lsf.launch_slots + slots}", f'-R "{terms}"']


def _files(request: Request) -> List[str]:
    return given(("-J {}", request.job_name), ("-o {}", request.output), ("-e {}", request.error))


def _minutes(time: str) -> int:
    """Return the minutes of H:MM:SS, the last one begun or whole."""
    hours, minutes, seconds = map(int, (time or "0:0:0").split(":"))
    return hours * 60 + minutes + bool(seconds)


def _hours(time: str) -> str:
    """Return H:MM of H:MM:SS; empty for none."""
    minutes = _minutes(time)
    return f"{minutes // 60}:{minutes % 60:02d}" if minutes else ""
