"""Batch scripts for Slurm and LSF, and the command that asks for nodes to type on."""

from __future__ import annotations

import pathlib
import shlex
from typing import List, Mapping, Optional, Sequence, Tuple

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.launch import methods
from hvd.launch.request import Request
from hvd.model import built
from hvd.model.site import Partition

#: Of `./hvd activate`, for the shell that batch scripts are for.
_FILE = "activate.sh"


def script(request: Request) -> str:
    """The whole batch script.

    Raises:
        HvdError: the site has no scheduler, or the launch is impossible.
    """
    if request.site.scheduler == "slurm":
        head = [f"#SBATCH {option}" for option in slurm_options(request)]
    elif request.site.scheduler == "lsf":
        head = [f"#BSUB {option}" for option in _lsf_options(request)]
    else:
        raise HvdError(
            f"{request.site.name} has no scheduler that takes a batch script",
            "leave --batch out; --run starts the program",
        )
    exported, prepared = site_exports(request), _preparation(request)
    # what it sources was written for some number of nodes, and the variables are for this one's
    middle = [prepared, exported] if _activation(request) else [exported, prepared]
    parts = [["#!/bin/bash", *head], *middle, [_launch(request)]]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def slurm_options(request: Request) -> List[str]:
    """sbatch's options for the job."""
    kind, further = _access(request)
    sizes = [("-t", request.time), ("-N", request.nodes), ("-c", request.partition.cpus_per_rank)]
    words = [*_given([("-A", request.account)]), *kind, *_given(sizes)]
    words += [_tasks(request), *_gpus(request), *further]
    named = [("-J", request.job_name), ("-o", request.output), ("-e", request.error)]
    return words + _given(named)


def slurm_access(request: Request) -> List[str]:
    """Those of sbatch's options that are the same for every job on such nodes."""
    kind, further = _access(request)
    return [*kind, *further]


def _access(request: Request) -> Tuple[List[str], List[str]]:
    """The options that choose the nodes, and those that come last."""
    ask = request.partition.slurm
    partition, qos = _queue(request)
    memory = [f"--mem-per-cpu={ask.mem_per_cpu_mb}"] if ask.mem_per_cpu_mb else []
    kind = _given([("-C", ask.constraint), ("-p", partition), ("-q", qos)])
    return kind, [*memory, *ask.head]


def _given(options: Sequence[Tuple[str, object]]) -> List[str]:
    """A text for each option that has a value."""
    return [f"{name} {value}" for name, value in options if value]


def asking(request: Request) -> str:
    """srun with all that it takes to get nodes and run the program on them.

    Raises:
        HvdError: the launch method is not srun.
    """
    if request.method != "srun":
        raise HvdError(
            f"--ask: {request.method} cannot ask for nodes", "use --batch, or --allocate first"
        )
    words = [word for option in slurm_options(request) for word in option.split()]
    bind = request.partition.slurm.cpu_bind
    words += [f"--cpu-bind={bind}"] if bind else []
    return methods.quoted(request, script=True, options=words)


def allocation(request: Request) -> str:
    """The command that gets nodes to type commands on.

    Raises:
        HvdError: the site's documents have none.
    """
    interactive = request.site.interactive
    if interactive is None:
        raise HvdError(
            f"{request.site.name}: no command is known that asks for nodes to type on",
            "use --batch",
        )
    words = {"salloc": _salloc, "srun": _srun_shell, "idev": _idev, "bsub": _bsub_shell}
    return shlex.join(words[interactive.command](request))


def _queue(request: Request) -> List[str]:
    """Partition and quality of service; --queue stands for the one that the site uses."""
    ask = request.partition.slurm
    if ask.qos:
        return [ask.partition, request.queue or ask.qos]
    return [request.queue or ask.partition, ""]


def _tasks(request: Request) -> str:
    """The option that asks for ranks."""
    if request.partition.slurm.tasks == "-n":
        return f"-n {request.ranks}"
    return f"--ntasks-per-node={request.ranks_per_node}"


def _gpus(request: Request) -> List[str]:
    """The option that asks for as many GPUs as ranks, but for no more than there are."""
    form = gpu_option(request.partition)
    count = min(request.ranks_per_node, request.partition.gpus)
    return [form.format(count)] if form else []


def gpu_option(partition: Partition) -> str:
    """The form of that option, {} for the number; empty where it is not needed."""
    forms = {"--gpus-per-node": "--gpus-per-node={}", "--gres": "--gres=gpu:{}"}
    return forms.get(partition.slurm.gpus, "")


def _lsf_options(request: Request) -> List[str]:
    lsf = request.partition.lsf
    if lsf is None:
        raise HvdError(
            f"{request.site.name}: partition {request.partition.name} has no LSF queue",
            "add 'lsf' to it in site.yaml",
        )
    options = [f"-P {request.account}"] if request.account else []
    options += [f"-W {_minutes(request.time)}"] if request.time else []
    if request.racks:
        slots = request.nodes * lsf.slots
        kind = "select[(({})&&(type==any))]order[r15s:pg]"
        launch = f"{kind.format('LN')}span[hosts=1]cu[type=rack:pref=config]"
        compute = f"{kind.format('CN')}span[ptile={lsf.slots}]cu[type=rack:maxcus={request.racks}]"
        terms = f"{lsf.launch_slots}*{{{launch}}}+{slots}*{{{compute}}}"
        # expert mode, which alone takes a reservation and which does not take -nnodes
        options += ["-csm y", f"-n {lsf.launch_slots + slots}", f'-R "{terms}"']
    else:
        options.append(f"-nnodes {request.nodes}")
    options.append(f"-q {request.queue or lsf.queue}")
    named = [("-J", request.job_name), ("-o", request.output), ("-e", request.error)]
    return options + _given(named)


def _minutes(time: str) -> str:
    """LSF's H:MM of our H:MM:SS; a begun minute counts."""
    hours, minutes, seconds = map(int, time.split(":"))
    minutes += hours * 60 + bool(seconds)
    return f"{minutes // 60}:{minutes % 60:02d}"


def site_exports(request: Request) -> List[str]:
    """A line of shell for each variable that the launcher and the site's network need."""
    bind = request.partition.slurm.cpu_bind
    values = {"SLURM_CPU_BIND": bind} if bind else {}
    return exports({**methods.choose(request).variables, **values, **request.fabric})


def exports(values: Mapping[str, str]) -> List[str]:
    """A line of shell for each variable."""
    return [f"export {name}={shlex.quote(value)}" for name, value in values.items()]


def _preparation(request: Request) -> List[str]:
    """Modules first, then the environment; a container has its own."""
    if request.image:
        return list(request.setup)
    ready = _activation(request)
    if ready:
        return [f". {shlex.quote(str(ready))}"]
    loads = request.modules or tuple(" ".join(load) for load in request.use.run)
    lines = [f"module load {load}" for load in loads]
    if request.setup:
        return [*lines, *request.setup]
    name = request.environment
    if built.file(name, "pip").is_file() and not built.file(name, "spack").is_file():
        raise HvdError(
            f"{name} was built by pip, and Spack cannot activate it",
            f"./hvd activate {name} first, which writes what the script then sources",
        )
    activate = shlex.quote(str(paths.STATE / "setup-env.sh"))
    return [*lines, f". {activate}", f"spack env activate {name}"]


def _activation(request: Request) -> Optional[pathlib.Path]:
    """What ./hvd activate wrote, modules included; None where something else is asked for."""
    if request.image or request.setup or request.modules:
        return None
    places = [built.activation(request.environment, engine) for engine in built.ENGINES]
    return next((place / _FILE for place in places if (place / _FILE).is_file()), None)


def _launch(request: Request) -> str:
    method = methods.choose(request)
    if not method.needs_hosts or request.hosts:
        return methods.quoted(request, script=True)
    # the hosts are known in the job alone: it asks there
    words = [str(paths.ROOT / "hvd"), "launch", request.environment, "--via", method.name]
    words += ["--nodes", str(request.nodes), "--ranks-per-node", str(request.ranks_per_node)]
    words += ["--partition", request.partition.name] + ["--gloo"] * request.gloo
    words += ["--rankfile", request.rankfile] if request.rankfile else []
    words += ["--racks", str(request.racks)] if request.racks else []
    words += ["--aisles", str(request.aisles)] if request.aisles else []
    for name, value in request.variables.items():
        words += ["--env", f"{name}={value}"]
    return f"{shlex.join([*words, '--run', '--'])} {methods.program(request)}"


def _salloc(request: Request) -> List[str]:
    ask = request.partition.slurm
    interactive = request.site.interactive
    partition, qos = _queue(request)
    if interactive and interactive.qos and not request.queue:
        qos = interactive.qos
    words = ["salloc", "--nodes", str(request.nodes)]
    named = [("partition", partition), ("qos", qos), ("time", request.time)]
    for name, value in [*named, ("constraint", ask.constraint)]:
        words += [f"--{name}", value] if value else []
    words += _gpus(request)
    return words + ([f"--account={request.account}"] if request.account else [])


def _srun_shell(request: Request) -> List[str]:
    interactive = request.site.interactive
    partition, _ = _queue(request)
    words = ["srun", "-N", str(request.nodes), f"--ntasks-per-node={request.ranks_per_node}"]
    words += ["-p", partition] if partition else []
    words += _gpus(request) if interactive and interactive.gpus else []
    words += [f"--time={request.time}"] if request.time else []
    words += [f"--account={request.account}"] if request.account else []
    return [*words, "--pty", "bash"]


def _idev(request: Request) -> List[str]:
    partition, _ = _queue(request)
    words = ["idev", "-p", partition, "-N", str(request.nodes), "-n", str(request.ranks)]
    if request.time:
        hours, minutes = map(int, _minutes(request.time).split(":"))
        words += ["-m", str(hours * 60 + minutes)]
    return words + (["-A", request.account] if request.account else [])


def _bsub_shell(request: Request) -> List[str]:
    words = ["bsub", *(["-W", _minutes(request.time)] if request.time else [])]
    words += ["-nnodes", str(request.nodes)]
    return [*words, *(["-P", request.account] if request.account else []), "-Is", "/bin/bash"]
