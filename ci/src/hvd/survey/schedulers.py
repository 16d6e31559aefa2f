"""The nodes that a scheduler has, as its own commands print them.

Slurm's are run in the tests.  PBS' and LSF's are by their documents, not run: ``pbsnodes`` and
``qstat`` with ``-F json`` of PBS 18 and later; ``bqueues`` and ``lshosts`` of LSF 10.1.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, Tuple

from hvd.core.errors import HvdError
from hvd.model.site import Lsf, Partition, Pbs, Slurm
from hvd.survey.record import Record

#: The types of `srun --mpi` for each MPI, the best first: https://slurm.schedmd.com/mpi_guide.html
PMI = {
    "openmpi": ("pmix",),
    "mpich": ("pmix", "pmi2"),
    "mvapich": ("pmi2", "pmix"),
    "mvapich-plus": ("pmi2", "pmix"),
    "cray-mpich": ("cray_shasta",),
}
#: A command that each scheduler alone has.
_PROGRAMS = {"slurm": "sinfo", "pbs": "pbsnodes", "lsf": "bqueues"}
#: Of each kind of node in each partition: partition, whether it is up, nodes, features, GPUs;
#: sockets, their cores, threads of these, CPUs, MB.
_SINFO = "%P|%a|%D|%f|%G|%X|%Y|%Z|%c|%m"


@dataclasses.dataclass(frozen=True)
class Kind:
    """Nodes of one kind in one queue."""

    queue: str
    nodes: int
    partition: Partition
    cpus: int  #: of a node, as the scheduler counts them
    memory_mb: int
    features: FrozenSet[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Found:
    """The answers of a scheduler."""

    scheduler: str
    kinds: Tuple[Kind, ...]
    default: str = ""  #: the queue of jobs that name none; empty if not known
    mpi_types: Tuple[str, ...] = ()  #: of srun
    mpi_default: str = ""

    def queues(self) -> Dict[str, List[Kind]]:
        """Return the kinds of node in each queue, the most frequent one first."""
        found: Dict[str, List[Kind]] = {}
        for kind in sorted(self.kinds, key=lambda each: (each.queue, -each.nodes)):
            found.setdefault(kind.queue, []).append(kind)
        return found


def find(record: Record) -> Found:
    """Return what the machine's scheduler says.

    Raises:
        HvdError: there is none, or its answer is not understood.
    """
    here = [name for name, program in _PROGRAMS.items() if record.has(program)]
    if not here:
        raise HvdError(
            f"no scheduler is here: {', '.join(_PROGRAMS.values())} are not on PATH",
            "run it on a login node; for a machine without a scheduler, see docs/on-site.md",
        )
    try:
        found = {"slurm": _slurm, "pbs": _pbs, "lsf": _lsf}[here[0]](record)
    except (AttributeError, IndexError, KeyError, ValueError) as error:
        raise HvdError(
            f"the answers of {here[0]} are not understood: {error!r}",
            f"does {_PROGRAMS[here[0]]} work?",
        ) from error
    if not found.kinds:
        raise HvdError(f"{here[0]} shows no nodes", f"does {_PROGRAMS[here[0]]} work?")
    return found


def _slurm(record: Record) -> Found:
    said = record.ask("scontrol", "show", "config")
    config = dict(re.findall(r"^(\S+)\s*= (.*?)\s*$", said, re.MULTILINE))
    said = record.ask("scontrol", "show", "partition", "--oneliner")
    lines = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in said.splitlines()]
    limits = {line["PartitionName"]: line for line in lines if line}
    # --gpus-per-node is of this plugin alone: man sbatch
    option = "--gpus-per-node" if config.get("SelectType") == "select/cons_tres" else "--gres"
    default, kinds = "", []
    for line in record.ask("sinfo", "--noheader", "--exact", f"--format={_SINFO}").splitlines():
        queue, state, nodes, features, gres, *numbers = line.strip().split("|")
        default = queue.rstrip("*") if queue.endswith("*") else default
        queue = queue.rstrip("*")
        sockets, cores, threads, cpus, memory = map(int, numbers)
        gpus = re.findall(r"\bgpu:(?:([^:,()]+):)?(\d+)", gres)
        count = sum(int(number) for _, number in gpus)
        asked = _memory(config, limits.get(queue, {}), cpus, memory)
        partition = Partition(
            **_shape(queue, cpus, count, gpus[0][0] if gpus else "", memory),
            # a node with fewer CPUs than threads has one for each core
            cores=min(sockets * cores, cpus),
            threads_per_core=threads if cpus >= sockets * cores * threads else 1,
            slurm=Slurm(partition=queue, gpus=option if count else "", mem_per_cpu_mb=asked),
        )
        if state == "up":
            words = frozenset(features.split(","))
            kinds.append(Kind(queue, int(nodes), partition, cpus, memory, words))
    types = re.findall(r"^(?:srun: )?\s*(\w+)$", record.ask("srun", "--mpi=list"), re.MULTILINE)
    return Found("slurm", tuple(kinds), default, tuple(types), config.get("MpiDefault", ""))


def _memory(config: Mapping[str, str], own: Mapping[str, str], cpus: int, memory: int) -> int:
    """Return the MB that a job has to ask for with each CPU, 0 if it gets as many unasked.

    Args:
        config: of the cluster.
        own: of the partition.
    """
    if "MEMORY" not in config.get("SelectTypeParameters", "").upper():
        return 0

    def number(source: Mapping[str, str], key: str) -> int:
        return int(source[key]) if source.get(key, "").isdigit() else 0

    most = number(own, "MaxMemPerCPU") or number(config, "MaxMemPerCPU")
    fair = min(memory // cpus, most or memory)
    unasked = [
        number(each, "DefMemPerCPU") or number(each, "DefMemPerNode") // cpus
        for each in (own, config)
    ]
    return fair if next(filter(None, unasked), fair) < fair else 0


def _pbs(record: Record) -> Found:
    nodes = json.loads(record.ask("pbsnodes", "-av", "-F", "json"))["nodes"].values()
    queues = json.loads(record.ask("qstat", "-Q", "-f", "-F", "json"))["Queue"]
    kinds: List[Kind] = []
    for queue in (name for name, about in queues.items() if about["queue_type"] == "Execution"):
        has = (node.get("resources_available", {}) for node in nodes)
        # nodes can be tied to queues
        own = [each for each in has if queue in str(each.get("Qlist", queue)).split(",")]
        shapes = collections.Counter(
            (int(each["ncpus"]), int(each.get("ngpus", 0)), "", _megabytes(str(each["mem"])))
            for each in own
            if "ncpus" in each
        )
        for (cpus, gpus, *_), kind in zip(shapes, _kinds(queue, shapes)):
            chunk = f"ncpus={cpus}" + (f":ngpus={gpus}" if gpus else "")
            partition = dataclasses.replace(kind.partition, pbs=Pbs(queue, chunk))
            kinds.append(dataclasses.replace(kind, partition=partition))
    return Found("pbs", tuple(kinds))


def _lsf(record: Record) -> Found:
    # the second GPU of a host has no name before it
    rows = re.findall(r"^(\S*)\s+(\d+)\s+(\S+)", record.ask("lshosts", "-gpu"), re.MULTILINE)
    gpus: Dict[str, List[str]] = {}
    for host, _, model in rows:
        name = host or list(gpus)[-1]
        gpus.setdefault(name, []).append(model)
    shapes: collections.Counter = collections.Counter()
    for line in record.ask("lshosts", "-w").splitlines()[1:]:
        host, _, _, _, cpus, memory, *_ = line.split()
        if cpus.isdigit():
            models = gpus.get(host, [])
            shapes[int(cpus), len(models), "".join(models[:1]), _megabytes(memory)] += 1
    kinds: List[Kind] = []
    for queue in [line.split()[0] for line in record.ask("bqueues", "-w").splitlines()[1:]]:
        for kind in _kinds(queue, shapes):
            partition = dataclasses.replace(kind.partition, lsf=Lsf(queue, kind.cpus, 0))
            kinds.append(dataclasses.replace(kind, partition=partition))
    return Found("lsf", tuple(kinds))


def _kinds(queue: str, shapes: Mapping[Tuple[int, int, str, int], int]) -> Iterator[Kind]:
    """Give a kind for each of these CPUs, GPUs, model and MB, of which so many nodes are there."""
    for (cpus, gpus, model, memory), nodes in shapes.items():
        shape = _shape(queue, cpus, gpus, model, memory)
        yield Kind(queue, nodes, Partition(**shape), cpus, memory)


def _shape(queue: str, cpus: int, gpus: int, model: str, memory_mb: int) -> Dict[str, Any]:
    """Return the keys of a partition that every scheduler tells."""
    ranks = Partition(queue, gpus).default_ranks
    shares = {"memory_gb": max(1, round(memory_mb / 1024)), "cpus_per_rank": max(1, cpus // ranks)}
    return {"name": queue, "gpus": gpus, "gpu": model, **shares}


def _megabytes(text: str) -> int:
    """Return the MB of ``384000000kb`` or ``7.4G``; without a unit, of bytes."""
    number, unit = re.fullmatch(r"([\d.]+)([kmgt]?)b?", text.lower()).groups()
    return int(float(number) * 1024.0 ** ("kmgt".index(unit) - 1 if unit else -2))
