"""Fill the commands of launchers.yaml with the values of a request."""

from __future__ import annotations

import pathlib
import re
import shlex
import string
from typing import Any, Dict, List, Mapping, Sequence

from hvd.core.errors import HvdError, nearest
from hvd.launch.request import Request
from hvd.model.site import Partition

#: Sets torch.distributed's variables on one rank, and becomes the program.
TORCH_RANK = pathlib.Path(__file__).resolve().with_name("torch-rank")
#: Gives one rank its GPU, and becomes the program.
GPU_RANK = TORCH_RANK.with_name("gpu-rank")


def fill(template: Sequence[str], values: Mapping[str, Any]) -> List[List[str]]:
    """Return the words of each entry of a command; launchers.yaml describes the entries."""
    found: List[List[str]] = []
    for entry in template:
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(entry) if name]
            value = values[names[0]] if names else entry
        except (KeyError, ValueError) as error:
            hint = nearest(str(error).strip("'"), values)
            raise HvdError(f"launch command: '{entry}' has no such value", hint) from error
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each:
                filled = {**values, **{name: each for name in names[:1]}}
                found.append([word.format_map(filled) for word in shlex.split(entry)])
    return found


def of_nodes(partition: Partition, queue: str = "") -> Dict[str, Any]:
    """Return the values that are the same for every job there.

    Args:
        queue: what the user asks for in place of the site's.
    """
    slurm, lsf, pbs = partition.slurm, partition.lsf, partition.pbs
    own = lsf or pbs
    return {
        "constraint": slurm.constraint,
        # a queue is a QOS at sites with these
        "partition": slurm.partition if slurm.qos else queue or slurm.partition,
        "qos": slurm.qos and (queue or slurm.qos),
        "mem_per_cpu_mb": slurm.mem_per_cpu_mb,
        "head": slurm.head,
        "queue": queue or (own.queue if own else ""),
        "chunk": pbs.chunk if pbs else "",
        "place": pbs.place if pbs else "",
        "resources": pbs.resources if pbs else (),
    }


def gpus_option(partition: Partition, count: object) -> str:
    """Return what asks Slurm for ``count`` GPUs of a node; empty if jobs get whole nodes."""
    form = {"--gpus-per-node": "--gpus-per-node={}", "--gres": "--gres=gpu:{}"}
    return form.get(partition.slurm.gpus, "").format(count)


def of_job(request: Request) -> Dict[str, Any]:
    """Return the values of the options that ask a scheduler for nodes."""
    partition, ranks = request.partition, request.ranks_per_node
    slurm, lsf, cpus = partition.slurm, partition.lsf, partition.cpus(ranks)
    nodes = of_nodes(partition, request.queue)
    hours, minutes, seconds = map(int, (request.time or "0:0:0").split(":"))
    minutes += bool(seconds)
    tasks = f"-n {request.ranks}" if slurm.tasks == "-n" else f"--ntasks-per-node={ranks}"
    gpus = gpus_option(partition, min(ranks, partition.gpus))
    interactive = request.site.interactive
    racks = ()
    if lsf and request.racks:
        # whole racks are reserved in expert mode, which does not take -nnodes
        slots, kind = request.nodes * lsf.slots, "select[(({})&&(type==any))]order[r15s:pg]"
        launch = f"{kind.format('LN')}span[hosts=1]cu[type=rack:pref=config]"
        compute = f"{kind.format('CN')}span[ptile={lsf.slots}]cu[type=rack:maxcus={request.racks}]"
        terms = f"{lsf.launch_slots}*{{{launch}}}+{slots}*{{{compute}}}"
        racks = ("-csm y", f"-n {lsf.launch_slots + slots}", f'-R "{terms}"')
    return {
        **{name: getattr(request, name) for name in ("account", "time", "job_name", "output")},
        **nodes,
        "error": request.error,
        "nodes": request.nodes,
        "ranks": request.ranks,
        "ranks_per_node": ranks,
        "cpus_per_rank": cpus,
        "tasks": tasks,
        "gpus": gpus,
        # where memory is counted by CPU a job gets a part of a node, and has to say which
        "part_tasks": tasks if slurm.mem_per_cpu_mb else "",
        "part_cpus": cpus if slurm.mem_per_cpu_mb else 0,
        "interactive_qos": (not request.queue and interactive and interactive.qos) or nodes["qos"],
        "interactive_gpus": gpus if interactive and interactive.gpus else "",
        "minutes": 60 * hours + minutes,
        "hours": f"{hours + minutes // 60}:{minutes % 60:02d}" if request.time else "",
        "whole_nodes": "" if racks else request.nodes,
        "racks": racks,
        "select": ":".join(filter(None, (str(request.nodes), nodes["chunk"]))),
    }


def of_launch(request: Request, script: bool) -> Dict[str, Any]:
    """Return the values of a launcher's command; ``script`` for one in a batch script."""
    method, partition, ranks = request.settings, request.partition, request.ranks_per_node
    whole = request.job is not None and len(request.job) == request.nodes
    racks, aisles = request.racks or 1, request.aisles or 1
    in_rack, in_aisle = request.nodes // racks, racks // aisles
    job = (request.hosts or request.job or ())[: request.nodes]
    pin = partition.pin
    # thread 0 of all cores is counted first
    threads = range(0, partition.cores * partition.threads_per_core, max(1, partition.cores))
    values = {
        **{name: getattr(request, name) for name in ("aisles", "image", "rankfile", "smpiargs")},
        "nodes": request.nodes,
        "ranks": request.ranks,
        "ranks_per_node": ranks,
        "cpus_per_rank": partition.cpus(ranks),
        "node_cpus": ranks * partition.cpus(ranks),
        # a script's job has these nodes and ranks
        "step_nodes": "" if script or whole else request.nodes,
        "step_ranks": "" if script else request.ranks,
        "part_nodes": "" if script or whole or request.job is None else request.nodes,
        "gloo": "--gloo" if request.gloo else "",
        "slots": ",".join(f"{host}:{ranks}" for host in request.hosts[: request.nodes]),
        "job_slots": ",".join(f"{host}:{ranks}" for host in job),
        "dealt_ranks": ";".join(
            f"{host}:{','.join(map(str, range(first, request.ranks, len(job))))}"
            for first, host in enumerate(job)
        ),
        "shape": f"{ranks}x{in_rack}x{in_aisle}x{aisles}",
        "rack_nodes": in_rack if request.racks else "",
        "aisle_racks": in_aisle if request.racks else "",
        "pinned_cpus": ",".join(f"{first}-{first + pin.cores - 1}" for first in threads)
        if pin and ranks == 1
        else "",
        "pinned_numa": str(pin.numa) if pin else "",
        "transport": method.transport,
        "without_rdma": () if request.rdma else method.without_rdma or (),
        "forwarded": _forwarded(request),
    }
    image = method.image if request.image else None
    for name, template in (
        ("options", method.options),
        ("step", partition.slurm.step),
        ("image_options", image.options if image else ()),
        ("container", image.command if image else ()),
    ):
        values[name] = [word for words in fill(template, values) for word in words]
    return values


def _forwarded(request: Request) -> List[str]:
    """Return each variable that mpirun gives to the ranks, with its value if it is known here."""
    values = {**request.fabric, **request.variables}
    meeting = ["MASTER_ADDR"] if request.torch and "MASTER_ADDR" not in values else []
    other_cases = set(request.site.known_variables()) - set(values)
    names = dict.fromkeys([*request.settings.forward, *meeting, *values])
    return [
        f"{name}={values[name]}" if name in values else name
        for name in names
        if name not in other_cases
    ]


def words(request: Request, script: bool = False) -> List[str]:
    """Return the words up to the program, for here and now or for a batch script."""
    method = request.settings
    taken = method.values & {"slots", "job_slots", "dealt_ranks"}
    several = request.nodes > 1 or "hosts" in method.needs
    # mpirun gets the hosts of a job from its scheduler
    in_job = request.site.scheduler != "none" and taken == {"slots"}
    if taken and several and not (script or in_job or request.hosts or request.job):
        raise HvdError(
            f"{request.method} needs to know the {request.nodes} hosts",
            "name them, for example --hosts 'server[1-4]', or start it inside a job",
        )
    template = method.script if script and method.script else method.line
    found = [word for entry in fill(template, of_launch(request, script)) for word in entry]
    gpu = request.partition.rank_gpu
    if gpu and request.use.operations != "cpu":
        found += [str(GPU_RANK), gpu.variable, gpu.local_rank, ",".join(map(str, gpu.order))]
    return found + [str(TORCH_RANK)] * request.torch


def variables(request: Request) -> Dict[str, str]:
    """Return the variables that the launcher needs."""
    found = {}
    for name, value in request.settings.variables.items():
        for entry in fill((value,), of_launch(request, True)):
            found[name] = " ".join(entry)
    return found


def prefix(request: Request) -> Dict[str, str]:
    """Return the user's variables that go in front of the command line."""
    return {} if "forwarded" in request.settings.values else dict(request.variables)


def quoted(request: Request, script: bool = False, options: Sequence[str] = ()) -> str:
    """Return the command line for a shell, with the user's variables in front of it.

    Args:
        script: it is for a batch script.
        options: go before the launcher's own.
    """
    launcher, *more = words(request, script)
    text = [f"{name}={shlex.quote(value)}" for name, value in prefix(request).items()]
    if request.torch and not script:
        text = [f"MASTER_ADDR={first_host(request)}", *text]
    return " ".join([*text, shlex.join([launcher, *options, *more]), program(request)])


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
    lsf = request.partition.lsf
    line = 2 if lsf and lsf.launch_slots else 1
    return request.scheduler.first_host.replace("{first_compute_host}", str(line))
