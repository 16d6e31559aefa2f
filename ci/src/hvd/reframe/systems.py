"""Every site as ReFrame's settings have a system: partitions, how they are asked for, features."""

from __future__ import annotations

import functools
import re
import subprocess
from typing import Any, Dict, List, Tuple

from hvd.core import paths
from hvd.launch import schedulers
from hvd.launch.request import Request
from hvd.model import environment, site
from hvd.model.site import Partition, Site

#: ReFrame's own launchers that are called as our methods are, but know nothing of a site.
_TAKEN = ("srun", "mpirun", "ibrun")
#: The feature of an environment whose operations on GPUs go through MPI.
GPU_MPI = "gpu-mpi"
#: What may carry operations on buffers on GPUs, as features name it.
ON_GPUS = ("nccl", "ddl", GPU_MPI)
#: What may carry them for ranks whose controller is MPI.
_WITH_MPI = ("mpi", "ccl", *ON_GPUS)
#: What may carry them at all.
OPERATIONS = (*_WITH_MPI, "gloo")
#: The launch method for a controller that is Gloo; a partition with it has a feature of its name.
GLOO = "horovodrun"
#: What an environment may have been built with, and how checks ask for it.
_VARIANTS = ("mpi", "gloo", "nccl", "ddl", "ccl", "cuda", "rocm")
#: Where `./hvd check` starts ReFrame, and all that it writes goes.
PREFIX = paths.STATE / "reframe"
#: Files are from where it is started; by itself ReFrame would write to the home directory.  Nor
#: does a scheduler like to be asked ten times a second.
REPORT = "report.json"
_GENERAL = {"report_file": REPORT, "report_junit": "junit.xml", "poll_rate_max": 1}
_LOGGING = {
    # each line below that costs ReFrame 20 ms, written or not
    "level": "info",
    "handlers": [
        {"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"},
        {
            "type": "file",
            "name": "log.txt",
            "level": "info",
            "format": "[%(asctime)s] %(levelname)s: %(check_info)s: %(message)s",
            "append": False,
        },
    ],
    "handlers_perflog": [
        {
            "type": "filelog",
            "prefix": "%(check_system)s/%(check_partition)s",
            "basedir": "performance",
            "level": "info",
            "format": "|".join(
                f"%(check_{each})s"
                for each in ("job_completion_time", "info", "jobid", "result", "perfvalues")
            ),
            "format_perfvars": "%(check_perf_value)s|%(check_perf_unit)s|%(check_perf_ref)s|",
            "append": True,
        }
    ],
}


def configuration() -> Dict[str, Any]:
    """ReFrame's ``site_configuration``."""
    sites = [site.load(name) for name in site.names()]
    return {
        "systems": [_system(each) for each in sites],
        "environments": [_environ(each, name) for each in sites for name in each.environments],
        "general": [_GENERAL],
        "logging": [_LOGGING],
    }


def launcher(method: str) -> str:
    """The name under which ReFrame knows one of our launch methods."""
    method = method.replace(".", "-")
    return f"hvd-{method}" if method in _TAKEN else method


def cases(machine: Site, name: str) -> List[Tuple[str, int]]:
    """What carries the operations of two ranks of an environment there, and on how many nodes."""
    chosen = [*_variants(name), *_gpu_mpi(name)]
    # srun and the like start ranks of MPI, whose controller does not go with Gloo's operations
    several = (1, 2) if _has_several_nodes(machine) else (1,)
    found = [
        (each, count) for each in _WITH_MPI if {each, "mpi"} <= {*chosen} for count in several
    ]
    # horovodrun reaches another node by ssh, and would have to be told which
    return found + [("gloo", 1)] * ("gloo" in chosen and GLOO in machine.allowed)


def _has_several_nodes(machine: Site) -> bool:
    return machine.scheduler != "none"


def environs(machine: Site, partition: Partition) -> List[str]:
    """The environments for nodes such as those of ``partition``."""
    return [
        name
        for name, use in machine.environments.items()
        if machine.partitions[use.partition].gpu == partition.gpu
    ]


def _system(machine: Site) -> Dict[str, Any]:
    return {
        "name": machine.name,
        "descr": machine.center,
        # none is told by its host's name: it is named, or nothing is chosen
        "hostnames": [],
        "modules_system": "nomod",
        "partitions": [_partition(machine, each) for each in machine.partitions.values()],
    }


def _partition(machine: Site, kind: Partition) -> Dict[str, Any]:
    names = environs(machine, kind)
    asked = Request(
        site=machine,
        environment=names[0] if names else "",
        partition=kind,
        nodes=1,
        ranks_per_node=1,
        method=machine.launcher,
    )
    found: Dict[str, Any] = {
        "name": kind.name,
        "scheduler": _scheduler(machine),
        "sched_options": {"use_nodes_option": True},
        "launcher": launcher(machine.launcher),
        "access": schedulers.of(machine).access(kind),
        "environs": names,
        "features": sorted({*_features(machine, kind), *_gpu_stacks(names)}),
        "extras": {"cpus_per_rank": kind.cpus_per_rank},
        "max_jobs": 8,
    }
    if kind.cores:
        found["processor"] = {"num_cpus": kind.cores * (kind.threads_per_core or 1)}
    if kind.gpus:
        found["devices"] = [{"type": "gpu", "model": kind.gpu, "num_devices": kind.gpus}]
    form = schedulers.slurm_gpu_option(kind) if machine.scheduler == "slurm" else ""
    if form:
        found["resources"] = [{"name": "gpu", "options": [form.format("{count}")]}]
    return found


def _features(machine: Site, kind: Partition) -> List[str]:
    several = ["several-nodes"] if _has_several_nodes(machine) else []
    return ["gpu" if kind.gpus else "cpu", *several, *({GLOO} & set(machine.allowed))]


def _gpu_stacks(names: List[str]) -> List[str]:
    return [
        variant for name in names for variant in _variants(name) if variant in ("cuda", "rocm")
    ]


def _scheduler(machine: Site) -> str:
    """ReFrame's name of it."""
    if machine.scheduler == "slurm":
        return slurm()
    return "local" if machine.scheduler == "none" else machine.scheduler


@functools.cache
def slurm() -> str:
    """ReFrame's scheduler for this Slurm: with accounting, it asks that how a job has ended."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "config"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return "slurm"  # another machine's settings, to be looked at
    without = re.search(
        r"^AccountingStorageType\s*=\s*(\(null\)|accounting_storage/none)$", done.stdout, re.M
    )
    return "squeue" if without else "slurm"


def _environ(machine: Site, name: str) -> Dict[str, Any]:
    use = machine.environments[name]
    chosen = environment.load(name)
    variants = _variants(name)
    # RCCL has NCCL's interface, and its variant
    rccl = ["rccl"] if {"nccl", "rocm"} <= set(variants) else []
    return {
        "name": name,
        "features": sorted({"horovod", *chosen.frameworks, *variants, *rccl, *_gpu_mpi(name)}),
        "extras": {"operations": use.operations},
        "target_systems": [machine.name],
    }


def _gpu_mpi(name: str) -> List[str]:
    return [GPU_MPI] * ("mpi" in environment.load(name).root.variants.get("gpu_ops", ()))


def _variants(name: str) -> List[str]:
    """Of those that are asked for, the ones that an environment has."""
    chosen = environment.load(name).root.variants
    return [each for each in _VARIANTS if chosen.get(each) is True]
