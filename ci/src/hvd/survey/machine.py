"""Ask a login node: its scheduler, its modules, and Spack about its software."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

import yaml

from hvd.core.errors import HvdError
from hvd.solve.spack import Spack

#: What each scheduler is asked; its first command tells that it is there.
_QUESTIONS = {
    "slurm": ("sinfo",),
    "pbs": ("pbsnodes -av", "qstat -Q -f"),
    "lsf": ("bqueues -w", "lshosts -w", "lshosts -gpu"),
}
#: Partition, whether it is up, nodes, GPUs; sockets, cores, threads, CPUs and MB of a node.
_SINFO = "%P|%a|%D|%G|%X|%Y|%Z|%c|%m"
#: Loads modules, one `module load` for each argument, and prints the variables.
_LOAD = 'for load in "$@"; do module load $load >&2 || exit; done; env -0'


@dataclasses.dataclass
class Record:
    """The commands of one visit to a machine, in the shell's variables, and their output."""

    shell: Mapping[str, str]
    entries: List[str] = dataclasses.field(default_factory=list)

    def ask(self, *words: str) -> str:
        """Return what a command prints; empty if it is not there or fails."""
        status, out, error = self._run(words)
        self.add(words[2] if words[:2] == ("bash", "-c") else shlex.join(words), out + error)
        # some Slurms and module tools print to standard error
        return "" if status else out if out.strip() else error

    def load(self, loads: Sequence[Sequence[str]]) -> Optional[Dict[str, str]]:
        """Return the variables behind these ``module load``, or None if one fails."""
        lines = [" ".join(load) for load in loads]
        status, out, error = self._run(["bash", "-c", _LOAD, "bash", *lines])
        found = dict(each.split("=", 1) for each in out.split("\0") if "=" in each)
        # the other variables may hold secrets
        shown = "; ".join([*(f"module load {line}" for line in lines), "echo $LOADEDMODULES"])
        self.add(shown, f"{error}{found.get('LOADEDMODULES', '')}")
        # the older Environment Modules fail with status 0
        return None if status or re.search(r"\bERROR:", error) else found

    def add(self, command: str, output: str) -> None:
        """Keep the output of a command that someone else ran."""
        self.entries.append(f"$ {command}\n{output.rstrip()}\n")

    def _run(self, words: Sequence[str]) -> Tuple[int, str, str]:
        keywords = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 300}
        try:
            done = subprocess.run(
                words, env=dict(self.shell), text=True, errors="replace", **keywords
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return 127, "", str(error)
        return done.returncode, done.stdout, done.stderr


@dataclasses.dataclass(frozen=True)
class Answer:
    """A scheduler, and its partitions as site.yaml has them; only Slurm's are read."""

    scheduler: str
    partitions: Mapping[str, Dict[str, Any]] = dataclasses.field(default_factory=dict)
    default: str = ""  #: the partition of jobs that name none; empty if unknown
    mpi_types: Tuple[str, ...] = ()  #: of srun, the default first


def scheduler(record: Record) -> Answer:
    """Return what the machine's scheduler says."""
    for name, questions in _QUESTIONS.items():
        if shutil.which(questions[0].split()[0], path=record.shell.get("PATH")):
            for question in questions:
                record.ask(*question.split())
            return _slurm(record) if name == "slurm" else Answer(name)
    raise HvdError(
        "no scheduler found: neither sinfo nor pbsnodes nor bqueues is on PATH",
        "run it on a login node; for a machine without a scheduler, see docs/on-site.md",
    )


def _slurm(record: Record) -> Answer:
    text = record.ask("scontrol", "show", "config")
    config = dict(re.findall(r"^(\S+)\s*= (.*?)\s*$", text, re.MULTILINE))
    # --gpus-per-node is of this plugin alone: man sbatch
    option = "--gpus-per-node" if config.get("SelectType") == "select/cons_tres" else "--gres"
    text = record.ask("scontrol", "show", "partition", "--oneliner")
    limits = dict(re.findall(r"^PartitionName=(\S+).*\bMaxMemPerCPU=(\d+)", text, re.MULTILINE))
    default, partitions, most = "", {}, {}
    for line in record.ask("sinfo", "--noheader", "--exact", f"--format={_SINFO}").splitlines():
        try:
            queue, state, count, gres, *numbers = line.strip().split("|")
            sockets, cores, threads, cpus, memory = map(int, numbers)
        except ValueError as error:
            raise HvdError(f"sinfo: cannot read '{line}'", "does sinfo work?") from error
        default = queue.rstrip("*") if queue.endswith("*") else default
        queue = queue.rstrip("*")
        gpus = re.findall(r"\bgpu:(?:([^:,()]+):)?(\d+)", gres)
        total = sum(int(number) for _, number in gpus)
        ask: Dict[str, Any] = {"partition": queue, **({"gpus": option} if gpus else {})}
        if "MEMORY" in config.get("SelectTypeParameters", "").upper():
            # a job that does not ask gets DefMemPerCPU, which may be little
            limit = limits.get(queue) or config.get("MaxMemPerCPU", "")
            ask["mem_per_cpu_mb"] = min(memory // cpus, int(limit) if limit.isdigit() else memory)
        # of several kinds of node, the most frequent one
        if state == "up" and int(count) > most.get(queue, 0):
            most[queue] = int(count)
            partitions[queue] = {
                "gpus": total,
                **({"gpu": gpus[0][0]} if total and gpus[0][0] else {}),
                # a node with fewer CPUs than threads has one for each core
                "cores": min(sockets * cores, cpus),
                "threads_per_core": threads if cpus >= sockets * cores * threads else 1,
                "memory_gb": max(1, round(memory / 1024)),
                "cpus_per_rank": max(1, cpus // (total or 2)),
                "slurm": ask,
            }
    if not partitions:
        raise HvdError("Slurm shows no nodes", "does sinfo work?")
    types = re.findall(r"^(?:srun: )?\s*(\w+)$", record.ask("srun", "--mpi=list"), re.MULTILINE)
    return Answer("slurm", partitions, default, (config.get("MpiDefault", ""), *types))


def places(variables: Mapping[str, str]) -> FrozenSet[str]:
    """Return every absolute path in the values of ``variables``."""
    words = (word for value in variables.values() for word in value.split(":"))
    return frozenset(word for word in words if re.fullmatch(r"/[^\s=;(){}]+", word))


def detect(
    record: Record, spack: Spack, hints: Iterable[str], names: Iterable[str], log: pathlib.Path
) -> Dict[str, List[Dict[str, Any]]]:
    """Return the externals that Spack finds of the packages ``names`` in ``hints`` or above.

    Args:
        hints: directories; one such as .../bin stands for its parent, too.
    """
    searched: Dict[str, None] = {}
    for hint in hints:
        parent, name = os.path.split(hint)
        for path in (hint, parent) if name in ("bin", "include", "lib", "lib64") else (hint,):
            if os.path.isdir(path):
                searched[path] = None
    find = ["external", "find", "--scope=user"]
    find += [word for path in searched for word in ("--path", path)]
    with tempfile.TemporaryDirectory() as scratch:
        scope = pathlib.Path(scratch, "scope")
        shutil.copytree(spack.scope, scope, ignore=shutil.ignore_patterns("packages.yaml"))
        variables = {"SPACK_USER_CONFIG_PATH": str(scope)}
        output = spack.run(*find, *names, log=log, variables=variables, timeout=600).output
        file = scope / "packages.yaml"
        text = file.read_text() if file.exists() else ""
    record.add(f"spack {' '.join(find)}", f"{output}\n{text}")
    found = (yaml.safe_load(text) or {}).get("packages", {})
    return {name: entry["externals"] for name, entry in found.items() if entry.get("externals")}
