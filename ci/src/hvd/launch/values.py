"""The values in the commands of launchers.yaml."""

from __future__ import annotations

import functools
import re
import shlex
from typing import Any, Dict, List, Mapping, Sequence

from hvd.core.errors import HvdError, nearest
from hvd.launch.request import Request
from hvd.model.site import Partition


def fill(template: Sequence[str], values: Mapping[str, Any]) -> List[List[str]]:
    """Return the words of each entry of a command; launchers.yaml describes the entries."""
    found: List[List[str]] = []
    for entry in template:
        name = "".join(re.findall(r"\{([\w.]+)\}", entry)[:1])
        first, *keys = name.split(".")
        if name and first not in values:
            raise HvdError(f"no value {{{name}}} for '{entry}'", nearest(name, values))
        value = functools.reduce(getattr, keys, values[first]) if name else True
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each:
                words = shlex.split(entry)
                found.append([word.replace(f"{{{name}}}", str(each)) for word in words])
    return found


def gpus_option(partition: Partition, count: object) -> str:
    """Return what asks Slurm for ``count`` GPUs of a node; empty if jobs get whole nodes."""
    form = {"--gpus-per-node": "--gpus-per-node={}", "--gres": "--gres=gpu:{}"}
    return form.get(partition.slurm.gpus, "").format(count)


def of_job(request: Request) -> Dict[str, Any]:
    """Return the values of the options that ask a scheduler for nodes."""
    partition, ranks = request.partition, request.ranks_per_node
    slurm, lsf, pbs, cpus = partition.slurm, partition.lsf, partition.pbs, partition.cpus(ranks)
    hours, minutes, seconds = map(int, (request.time or "0:0:0").split(":"))
    minutes += 60 * hours + bool(seconds)
    tasks = f"-n {request.ranks}" if slurm.tasks == "-n" else f"--ntasks-per-node={ranks}"
    gpus = gpus_option(partition, min(ranks, partition.gpus))
    interactive, rack_terms = request.site.interactive, ()
    if lsf and request.racks:
        # whole racks are reserved in expert mode, which does not take -nnodes
        slots, kind = request.nodes * lsf.slots, "select[(({})&&(type==any))]order[r15s:pg]"
        launch = f"{kind.format('LN')}span[hosts=1]cu[type=rack:pref=config]"
        compute = f"{kind.format('CN')}span[ptile={lsf.slots}]cu[type=rack:maxcus={request.racks}]"
        terms = f"{lsf.launch_slots}*{{{launch}}}+{slots}*{{{compute}}}"
        rack_terms = ("-csm y", f"-n {lsf.launch_slots + slots}", f'-R "{terms}"')
    return {
        **vars(request),
        **{"slurm": slurm, "lsf": lsf, "pbs": pbs, "ranks": request.ranks, "cpus_per_rank": cpus},
        **{"tasks": tasks, "gpus": gpus, "minutes": minutes, "rack_terms": rack_terms},
        # where memory is counted by CPU a job gets a part of a node, and has to say which
        "part_tasks": tasks if slurm.mem_per_cpu_mb else "",
        "part_cpus": cpus if slurm.mem_per_cpu_mb else 0,
        "interactive_qos": (not request.queue and interactive and interactive.qos) or slurm.qos,
        "interactive_gpus": gpus if interactive and interactive.gpus else "",
        "hours": f"{minutes // 60}:{minutes % 60:02d}" if request.time else "",
        "whole_nodes": "" if rack_terms else request.nodes,
        "select": ":".join(filter(None, (str(request.nodes), pbs.chunk if pbs else ""))),
    }


def of_launch(request: Request, script: bool) -> Dict[str, Any]:
    """Return the values of a launcher's command; ``script`` for one in a batch script."""
    method, partition, ranks = request.settings, request.partition, request.ranks_per_node
    nodes, cpus, pin = request.nodes, partition.cpus(ranks), partition.pin
    whole = request.job is not None and len(request.job) == nodes
    shifter = method.shifter if request.image else None
    racks, aisles = request.racks or 1, request.aisles or 1
    named, known = request.hosts[:nodes], (request.hosts or request.job or ())[:nodes]
    # thread 0 of all cores is counted first
    threads = range(0, partition.cores * partition.threads_per_core, partition.cores or 1)
    cores = [f"{first}-{first + pin.cores - 1}" for first in threads] if pin else []
    dealt = [
        f"{host}:{','.join(map(str, range(first, request.ranks, len(known))))}"
        for first, host in enumerate(known)
    ]
    values = {
        **vars(request),
        **{"ranks": request.ranks, "cpus_per_rank": cpus, "node_cpus": ranks * cpus},
        # a script's job has these nodes and ranks
        "step_nodes": "" if script or whole else nodes,
        "step_ranks": "" if script else request.ranks,
        "part_nodes": "" if script or whole or request.job is None else nodes,
        "gloo": "--gloo" if request.gloo else "",
        "slots": ",".join(f"{host}:{ranks}" for host in named),
        "job_slots": ",".join(f"{host}:{ranks}" for host in known),
        "dealt_ranks": ";".join(dealt),
        "shape": f"{ranks}x{nodes // racks}x{racks // aisles}x{aisles}",
        "rack_nodes": nodes // racks if request.racks else "",
        "aisle_racks": racks // aisles if request.racks else "",
        "pinned_cpus": ",".join(cores) if ranks == 1 else "",
        "pinned_numa": str(pin.numa) if pin else "",
        "shifter_options": shifter.options if shifter else (),
        "shifter_modules": ",".join(shifter.modules) if shifter else "",
        "transport": method.transport,
        "without_rdma": () if request.rdma else method.without_rdma or (),
        "forwarded": _forwarded(request),
    }
    for name, template in (("options", method.options), ("step", partition.slurm.step)):
        values[name] = [word for words in fill(template, values) for word in words]
    return values


def _forwarded(request: Request) -> List[str]:
    """Return each variable that mpirun gives to the ranks, with its value if it is known here."""
    values = {**request.fabric, **request.variables}
    meeting = ["MASTER_ADDR"] if request.torch and "MASTER_ADDR" not in values else []
    other_cases = set(request.site.known_variables()) - set(values)
    return [
        f"{name}={values[name]}" if name in values else name
        for name in dict.fromkeys([*request.settings.forward, *meeting, *values])
        if name not in other_cases
    ]
