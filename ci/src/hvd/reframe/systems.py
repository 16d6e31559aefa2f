"""Every site as a system in ReFrame's settings: partitions, how to ask for them, features."""

from __future__ import annotations

import functools
import pathlib
import re
from typing import Any, Dict, List

from hvd.core import paths, process
from hvd.launch import values
from hvd.model import environment, site
from hvd.model.site import Partition, Site

#: ReFrame's own launchers that have the name of a launch method, but know nothing of a site.
_TAKEN = ("srun", "mpirun", "mpiexec", "ibrun")
#: The feature of an environment whose operations on GPUs go through MPI.
GPU_MPI = "gpu-mpi"
#: Features of what carries operations on GPUs, and of all.
ON_GPUS = ("nccl", "ddl", GPU_MPI)
OPERATIONS = ("mpi", "ccl", *ON_GPUS, "gloo")
#: The launch method for Gloo as controller, and the feature of a partition with it.
GLOO = "horovodrun"
#: The variants of Horovod that are features.
_VARIANTS = ("mpi", "gloo", "nccl", "ddl", "ccl", "cuda", "rocm")
REPORT = "report.json"
#: Files are relative to `prefix`: ReFrame's default is the home directory.  Its default rate of
#: polling, ten times a second, is too much for a scheduler.
_GENERAL = {"report_file": REPORT, "report_junit": "junit.xml", "poll_rate_max": 1}
_PERFORMANCE = ("job_completion_time", "info", "jobid", "result", "perfvalues")
_LOGGING = {
    # each line of a lower level costs ReFrame 20 ms, written or not
    "level": "info",
    "handlers": [
        {"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"},
        {
            **{"type": "file", "name": "log.txt", "level": "info", "append": False},
            "format": "[%(asctime)s] %(levelname)s: %(check_info)s: %(message)s",
        },
    ],
    "handlers_perflog": [
        {
            **{"type": "filelog", "basedir": "performance", "level": "info", "append": True},
            "prefix": "%(check_system)s/%(check_partition)s",
            "format": "|".join(f"%(check_{each})s" for each in _PERFORMANCE),
            "format_perfvars": "%(check_perf_value)s|%(check_perf_unit)s|%(check_perf_ref)s|",
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


def _partition(machine: Site, kind: Partition) -> Dict[str, Any]:
    names = [
        name
        for name, use in machine.environments.items()
        if machine.partitions[use.partition].gpu == kind.gpu
    ]
    features = {"gpu" if kind.gpus else "cpu", *({GLOO} & set(machine.allowed))}
    features |= set() if machine.scheduler == "none" else {"several-nodes"}
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
    if kind.slurm.gpus:
        option = values.gpus_option(kind, "{count}")
        found["resources"] = [{"name": "gpu", "options": [option]}]
    return found


def _access(machine: Site, kind: Partition) -> List[str]:
    """Return the options that every job there has: those with the site's own values alone."""
    scheduler = site.launchers().schedulers[machine.scheduler]
    own = {name: getattr(kind, name) for name in ("slurm", "lsf", "pbs") if getattr(kind, name)}
    template = [each for each in scheduler.batch if f"{{{machine.scheduler}." in each]
    # ReFrame puts what begins with no dash behind the number of nodes
    chunk = [kind.pbs.chunk] if kind.pbs and kind.pbs.chunk else []
    return chunk + [" ".join(words) for words in values.fill(template, own)]


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
