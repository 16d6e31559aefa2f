"""Every site as a system in ReFrame's settings: partitions, how to ask for them, features."""

from __future__ import annotations

import functools
import pathlib
import re
from typing import Any, Dict, List, Tuple

from hvd.core import paths, process
from hvd.launch import methods
from hvd.model import environment, site
from hvd.model.site import Partition, Site

#: ReFrame's own launchers that have the name of a launch method, but know nothing of a site.
_TAKEN = ("srun", "mpirun", "mpiexec", "ibrun")
#: The feature of an environment whose operations on GPUs go through MPI.
GPU_MPI = "gpu-mpi"
#: Features of what carries operations on GPUs; of what does if MPI is the controller; of all.
ON_GPUS = ("nccl", "ddl", GPU_MPI)
_WITH_MPI = ("mpi", "ccl", *ON_GPUS)
OPERATIONS = (*_WITH_MPI, "gloo")
#: The launch method for Gloo as controller, and the feature of a partition with it.
GLOO = "horovodrun"
#: The variants of Horovod that are features.
_VARIANTS = ("mpi", "gloo", "nccl", "ddl", "ccl", "cuda", "rocm")
REPORT = "report.json"
#: Files are relative to `prefix`: ReFrame's default is the home directory.  Its default rate of
#: polling, ten times a second, is too much for a scheduler.
_GENERAL = {"report_file": REPORT, "report_junit": "junit.xml", "poll_rate_max": 1}
_LOGGING = {
    # each line of a lower level costs ReFrame 20 ms, written or not
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


def prefix() -> pathlib.Path:
    """Return the directory in which `./hvd check` starts ReFrame, and to which it writes."""
    return paths.state() / "reframe"


def configuration() -> Dict[str, Any]:
    """ReFrame's ``site_configuration``."""
    sites = [site.load(name) for name in site.names()]
    systems = [
        {
            "name": machine.name,
            "descr": machine.center,
            # no system is found by the host's name: --system names it
            "hostnames": [],
            "modules_system": "nomod",
            "partitions": [_partition(machine, each) for each in machine.partitions.values()],
        }
        for machine in sites
    ]
    environs = [
        {
            "name": name,
            "features": _features(name),
            "extras": {"operations": use.operations},
            "target_systems": [machine.name],
        }
        for machine in sites
        for name, use in machine.environments.items()
    ]
    settings = {"general": [_GENERAL], "logging": [_LOGGING]}
    return {"systems": systems, "environments": environs, **settings}


def launcher(method: str) -> str:
    """ReFrame's name of a launch method."""
    method = method.replace(".", "-")
    return f"hvd-{method}" if method in _TAKEN else method


def cases(machine: Site, name: str) -> List[Tuple[str, int]]:
    """Return the libraries of operations for two ranks of ``name``, with the nodes of each."""
    features = _features(name)
    # srun and its like start ranks of MPI, whose controller does not go with Gloo's operations
    with_mpi = [each for each in _WITH_MPI if each in features and "mpi" in features]
    found = [(each, nodes) for each in with_mpi for nodes in (1, 2)[: _most_nodes(machine)]]
    # horovodrun reaches another node by ssh, and would have to be told which
    return found + [("gloo", 1)] * ("gloo" in features and GLOO in machine.allowed)


def _most_nodes(machine: Site) -> int:
    return 1 if machine.scheduler == "none" else 2


def _partition(machine: Site, kind: Partition) -> Dict[str, Any]:
    names = [
        name
        for name, use in machine.environments.items()
        if machine.partitions[use.partition].gpu == kind.gpu
    ]
    features = {"gpu" if kind.gpus else "cpu", *({GLOO} & set(machine.allowed))}
    features |= {"several-nodes"} if _most_nodes(machine) > 1 else set()
    features |= {"cuda", "rocm"} & {feature for name in names for feature in _features(name)}
    found: Dict[str, Any] = {
        "name": kind.name,
        "scheduler": {"slurm": slurm(), "none": "local"}.get(machine.scheduler, machine.scheduler),
        "sched_options": {"use_nodes_option": True},
        "launcher": launcher(machine.launcher),
        "access": _access(machine, kind),
        "environs": names,
        "features": sorted(features),
        "extras": {"cpus_per_rank": kind.cpus_per_rank},
        "max_jobs": 8,
    }
    if kind.cores:
        found["processor"] = {"num_cpus": kind.cores * (kind.threads_per_core or 1)}
    if kind.gpus:
        found["devices"] = [{"type": "gpu", "model": kind.gpu, "num_devices": kind.gpus}]
    form = methods.gpus_option(kind, "{count}")
    if form:
        found["resources"] = [{"name": "gpu", "options": [form]}]
    return found


@functools.cache
def slurm() -> str:
    """ReFrame's scheduler for this Slurm: one without accounting does not tell how a job ended."""
    settings = process.output("scontrol", "show", "config")
    without = r"^AccountingStorageType\s*=\s*(\(null\)|accounting_storage/none)$"
    return "squeue" if re.search(without, settings, re.M) else "slurm"


def _features(name: str) -> List[str]:
    """Horovod, its frameworks, the variants that are on, and what follows from these."""
    chosen = environment.load(name)
    variants = chosen.root.variants
    found = {"horovod", *chosen.frameworks}
    found |= {each for each in _VARIANTS if variants.get(each) is True}
    if {"nccl", "rocm"} <= found:
        found.add("rccl")  # which has NCCL's interface, and its variant
    if "mpi" in variants.get("gpu_ops", ()):
        found.add(GPU_MPI)
    return sorted(found)
