"""Compare the files of a site with the machine."""

from __future__ import annotations

import dataclasses
import enum
import os
import pathlib
import re
import shutil
import subprocess
import textwrap
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, Tuple

from hvd.core.errors import HvdError
from hvd.host import externals, mpi
from hvd.model.site import Partition, Site
from hvd.model.specs import parse
from hvd.solve import site_check
from hvd.solve.spack import Spack
from hvd.survey import schedulers, software
from hvd.survey.record import Record, places
from hvd.survey.schedulers import Found, Kind


class State(str, enum.Enum):
    """The state of a fact."""

    same = "as declared"
    moved = "moved"
    gone = "gone"
    unknown = "not known"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A fact, and what the machine says of it."""

    fact: str
    state: State
    declared: str
    found: str = ""


def examine(machine: Site, record: Record, spack: Spack, log: pathlib.Path) -> List[Finding]:
    """Return what the machine says of each fact of its files."""
    return [
        *_scheduler(machine, record),
        *_modules(machine, record),
        *_externals(machine, record, spack, log),
    ]


def _scheduler(machine: Site, record: Record) -> Iterator[Finding]:
    if machine.scheduler == "none":
        return
    try:
        found = schedulers.find(record)
    except HvdError as error:
        yield Finding("scheduler", State.unknown, machine.scheduler, error.message)
        return
    yield _compared("scheduler", machine.scheduler, found.scheduler)
    for name, declared in machine.partitions.items():
        yield from _partition(f"partition {name}", declared, found)
    options = [word for each in machine.allowed.values() for word in each.options]
    options += [word for each in machine.partitions.values() for word in each.slurm.step]
    for kind in sorted({word[6:] for word in options if word.startswith("--mpi=")}):
        state = State.same if kind in found.mpi_types else State.gone
        yield Finding("srun --mpi", state, kind, ", ".join(found.mpi_types))


def _partition(fact: str, declared: Partition, found: Found) -> Iterator[Finding]:
    queue = next((each.queue for each in (declared.lsf, declared.pbs) if each), "")
    queue = queue or declared.slurm.partition
    features = set(re.findall(r"[\w.-]+", declared.slurm.constraint))
    # at sites with QOS or features, jobs need not name a partition
    wanted = queue or ("" if features or declared.slurm.qos else found.default)
    kinds = [each for each in found.kinds if wanted in ("", each.queue)]
    kinds = [each for each in kinds if features <= each.features]
    shown = " ".join(filter(None, [queue or found.default, *sorted(features)]))
    if not kinds:
        queues = ", ".join(found.queues())
        yield Finding(fact, State.gone, shown, f"there are {queues}")
        return
    yield Finding(fact, State.same, shown)
    each_kind = [_differences(fact, declared, kind) for kind in kinds]
    yield from min(each_kind, key=lambda found: sum(each.state is State.moved for each in found))


def _differences(fact: str, declared: Partition, kind: Kind) -> List[Finding]:
    has = kind.partition
    findings = [_compared(f"{fact}: GPUs", declared.gpus, has.gpus)]
    if declared.gpu and has.gpu:
        # "A100 64 GB" is a100_64gb to Slurm
        model = re.split(r"\W", declared.gpu.lower())[0]
        state = State.same if model in has.gpu.lower() else State.moved
        findings.append(Finding(f"{fact}: GPU", state, declared.gpu, has.gpu))
    if declared.cores and has.cores:
        finding = _compared(f"{fact}: cores", declared.cores, has.cores)
        if has.cores > declared.cores:
            # a scheduler counts those that it keeps from jobs
            finding = dataclasses.replace(finding, state=State.unknown)
        findings.append(finding)
    if declared.memory_gb:
        # the memory of a data sheet, and what its system leaves of it
        close = abs(declared.memory_gb - has.memory_gb) <= 0.1 * declared.memory_gb
        state = State.same if close else State.moved
        values = (f"{each.memory_gb} GB" for each in (declared, has))
        findings.append(Finding(f"{fact}: memory", state, *values))
    asked = declared.slurm.mem_per_cpu_mb
    if asked or has.slurm.mem_per_cpu_mb:
        fits = asked * kind.cpus <= kind.memory_mb and bool(asked)
        state = State.same if fits else State.moved
        most = f"at most {kind.memory_mb // kind.cpus} MB"
        findings.append(Finding(f"{fact}: memory for a CPU", state, f"{asked} MB", most))
    return findings


def _modules(machine: Site, record: Record) -> Iterator[Finding]:
    loads = dict.fromkeys(
        load for use in machine.environments.values() for load in (use.build, use.run) if load
    )
    for load in loads:
        shown = "; ".join(" ".join(words) for words in load)
        there = record.load(load) is not None
        # behind the command itself
        said = "" if there else record.entries[-1].partition("\n")[2]
        state = State.same if there else State.gone
        yield Finding("module load", state, shown, textwrap.shorten(said, 100))


def _externals(
    machine: Site, record: Record, spack: Spack, log: pathlib.Path
) -> Iterator[Finding]:
    file = site_check.file(machine.name)
    # a machine of one's own may have none
    provided = site_check.externals(file) if file.exists() else {}
    declared = [(name, *each) for name, entries in provided.items() for each in entries]
    made = {
        name for use in machine.environments.values() if use.make for name in use.make.packages
    }
    shells = {
        modules: record.load([[module] for module in modules])
        for modules in {modules for *_, modules in declared}
    }
    here = places(record.load([]) or {})
    brought = {modules: places(shell or {}) - here for modules, shell in shells.items()}
    hints = [prefix for _, _, prefix, _ in declared if prefix]
    hints += sorted(frozenset().union(*brought.values()))
    names = [name for name in provided if name in software.DETECTABLE]
    detected = software.detect(record, spack, hints, names, log)
    pythons = _Pythons()
    for name, version, prefix, modules in declared:
        shown = f"{version} at {prefix}" if prefix else version
        shell = shells[modules]
        if name in made:
            state, said = State.unknown, "users make it"
        elif shell is None:
            state, said = State.gone, f"{' '.join(modules)} cannot be loaded"
        elif name == "python" or name.startswith("py-"):
            found = pythons.versions(name, prefix, shell)
            state, said = _state(version, prefix, found, brought[modules])
        else:
            found = _versions(name, prefix, detected.get(name, []))
            state, said = _state(version, prefix, found, brought[modules])
        yield Finding(f"external {name}", state, shown, said)


#: Prefixes with the versions found there.
_Versions = List[Tuple[str, str]]


def _state(
    version: str, prefix: str, found: _Versions, brought: FrozenSet[str]
) -> Tuple[State, str]:
    """Return the state of an external, and what was found in its place.

    Args:
        found: the versions of its package.
        brought: the paths that its modules add.
    """
    elsewhere = ", ".join(
        f"{each} at {place}" for place, each in found if software.any_below(place, brought)
    )
    if prefix and not os.path.isdir(prefix):
        return (State.moved, elsewhere) if elsewhere else (State.gone, "no such directory")
    if brought and prefix not in ("", "/usr") and not software.any_below(prefix, brought):
        return State.moved, f"its modules are of {elsewhere or 'another prefix'}"
    versions = [each for place, each in found if prefix in ("", place)]
    if not versions:
        return State.unknown, "no program tells the version"
    if any(_same(version, each) for each in versions):
        return State.same, ""
    return State.moved, ", ".join(versions)


def _same(declared: str, found: str) -> bool:
    """Return whether two versions agree as far as both go."""
    return all(a == b for a, b in zip(declared.split("."), found.split(".")))


def _versions(name: str, prefix: str, detected: List[software.External]) -> _Versions:
    found = [(each["prefix"], parse(each["spec"]).versions) for each in detected]
    # an MPI that Spack does not detect
    said = mpi.of_launcher(f"{prefix}/bin/mpirun") if name in software.MPIS else None
    found += [(prefix, said[1])] if said and said[0] == name else []
    # nvcc has a number of its own behind 12.4
    return [(p, ".".join(v.split(".")[:2])) for p, v in found] if name == "cuda" else found


class _Pythons:
    """The interpreters that externals are of, each asked once."""

    def __init__(self) -> None:
        self._said: Dict[str, Dict[str, Any]] = {}

    def versions(self, name: str, prefix: str, shell: Mapping[str, str]) -> _Versions:
        """Return those that the interpreter at ``prefix``, or else that on PATH, has."""
        own = shutil.which("python3", path=f"{prefix}/bin")
        python = own or shutil.which("python3", path=shell.get("PATH")) or "python3"
        if python not in self._said:
            try:
                self._said[python] = externals.ask(python, shell)
            except (HvdError, subprocess.SubprocessError):
                self._said[python] = {}
        said = self._said[python]
        if not said:
            return []
        if name == "python":
            return [(said["python"]["prefix"], said["python"]["version"])]
        item = externals.by_package(said["distributions"]).get(name, {"version": "none"})
        return [(prefix, externals.spack_version(item["version"]))]


def _compared(fact: str, declared: object, found: object) -> Finding:
    state = State.same if declared == found else State.moved
    return Finding(fact, state, str(declared), str(found))
