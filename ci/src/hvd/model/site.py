"""The sites: what ``sites/<site>/site.yaml`` says of a machine.

``site.schema.json`` gives the meaning and the unit of each key, which is a field here.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import cattrs

from hvd.core import paths, schema
from hvd.core.errors import HvdError
from hvd.core.paths import shorten
from hvd.model import environment as environments

SCHEMA = pathlib.Path(__file__).resolve().with_name("site.schema.json")
SITE = "site.yaml"
#: The site of the environments that include none: this machine.
LOCAL = "local"


@dataclasses.dataclass(frozen=True)
class Limit:
    max: int
    reason: str
    remedy: str


@dataclasses.dataclass(frozen=True)
class CpuLimit:
    gpus: int
    cpus: int


@dataclasses.dataclass(frozen=True)
class Account:
    needed: bool = False
    suffix: str = ""


@dataclasses.dataclass(frozen=True)
class Pin:
    cores: int
    numa: int


@dataclasses.dataclass(frozen=True)
class RankGpu:
    variable: str
    local_rank: str
    order: Tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Slurm:
    constraint: str = ""
    partition: str = ""
    qos: str = ""
    gpus: str = ""
    tasks: str = "--ntasks-per-node"
    mem_per_cpu_mb: int = 0
    cpu_bind: str = ""
    head: Tuple[str, ...] = ()
    step: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Lsf:
    queue: str
    slots: int
    launch_slots: int
    nodes_per_rack: int = 0


@dataclasses.dataclass(frozen=True)
class Pbs:
    queue: str
    chunk: str = ""
    place: str = ""
    resources: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Partition:
    """A kind of node; 0 where a number is not known."""

    name: str
    gpus: int
    gpu: str = ""
    cores: int = 0
    threads_per_core: int = 0
    memory_gb: int = 0
    ranks: int = 0
    cpus_per_rank: int = 0
    cpu_limits: Tuple[CpuLimit, ...] = ()
    account: Account = dataclasses.field(default_factory=Account)
    ranks_per_gpu: Optional[Limit] = None
    rank_gpu: Optional[RankGpu] = None
    pin: Optional[Pin] = None
    slurm: Slurm = dataclasses.field(default_factory=Slurm)
    lsf: Optional[Lsf] = None
    pbs: Optional[Pbs] = None
    source: Tuple[str, ...] = ()

    @property
    def default_ranks(self) -> int:
        """Ranks on a node where none are asked for: the GPUs, or two for CPUs."""
        return self.ranks or self.gpus or 2

    def cpus(self, ranks: int) -> int:
        """CPUs for each of ``ranks`` on a node, as the scheduler counts them."""
        gpus = min(ranks, self.gpus)
        limits = [limit.cpus // ranks for limit in self.cpu_limits if limit.gpus == gpus]
        return min([self.cpus_per_rank, *limits])


@dataclasses.dataclass(frozen=True)
class Bandwidth:
    operations: str
    nodes: int
    bus_mb_s: float
    source: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Checked:
    date: str
    by: str


@dataclasses.dataclass(frozen=True)
class Make:
    packages: Tuple[str, ...]
    commands: Tuple[str, ...]
    source: Tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Removed:
    date: str
    modules: Tuple[str, ...]
    source: Tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Use:
    """An environment's part of a site: a partition, operations, modules to load.

    Each of ``build`` and ``run`` holds the words of one ``module load`` after the other.
    """

    partition: str
    operations: str
    #: the site's where its file gives none
    checked: Optional[Checked] = None
    make: Optional[Make] = None
    build: Tuple[Tuple[str, ...], ...] = ()
    run: Tuple[Tuple[str, ...], ...] = ()
    bandwidth: Tuple[Bandwidth, ...] = ()

    def least_bandwidth(self, operations: str, nodes: int) -> Optional[Bandwidth]:
        """Return the bound for them; None where the site has no number."""
        wanted = (operations, nodes)
        return next((b for b in self.bandwidth if (b.operations, b.nodes) == wanted), None)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a launch method is used at a site; see the schema."""

    options: Tuple[str, ...] = ()
    forward: Tuple[str, ...] = ()
    transport: Tuple[str, ...] = ()
    without_rdma: Optional[Tuple[str, ...]] = None
    order: Mapping[str, List[str]] = dataclasses.field(default_factory=dict)
    shifter: Optional[Mapping[str, List[str]]] = None


@dataclasses.dataclass(frozen=True)
class Interactive:
    command: str
    qos: str = ""
    gpus: bool = True


@dataclasses.dataclass(frozen=True)
class Pitfall:
    text: str
    source: Tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Status:
    state: str
    since: str = ""
    successors: Tuple[str, ...] = ()
    waits_for: str = ""


@dataclasses.dataclass(frozen=True)
class Modules:
    tool: str
    hierarchy: Tuple[str, ...] = ()
    projection: str = ""
    conflict: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Site:
    """A machine.

    Args:
        allowed: the launch methods that work there, with their settings.
        refused: those that do not, each with the reason.
        fabric: environment variables by case; see the schema.
        sources: the documents, by the names they are cited with.
    """

    name: str
    center: str
    status: Status
    checked: Checked
    scheduler: str
    launcher: str
    allowed: Mapping[str, Settings]
    refused: Mapping[str, str]
    partitions: Mapping[str, Partition]
    environments: Mapping[str, Use]
    fabric: Mapping[str, Mapping[str, str]]
    modules: Modules
    sources: Mapping[str, str]
    interactive: Optional[Interactive] = None
    pitfalls: Tuple[Pitfall, ...] = ()
    removed: Tuple[Removed, ...] = ()

    def variables(
        self, operations: str, nodes: Optional[int] = None, rdma: bool = False
    ) -> Dict[str, str]:
        """Return the fabric's environment variables; ``nodes`` is None for a job of any size."""
        found: Dict[str, str] = {}
        cases = ["always", operations]
        if nodes is not None:
            cases.append("one_node" if nodes == 1 else "many_nodes")
        for case in cases + ["rdma"] * rdma:
            found.update(self.fabric.get(case, {}))
        return found

    def known_variables(self) -> List[str]:
        """Return the name of every variable that some case sets."""
        return [name for case in self.fabric.values() for name in case]


def names() -> List[str]:
    """Return the names of all sites."""
    return sorted({path.parent.name for each in _directories() for path in each.glob(f"*/{SITE}")})


def file(name: str) -> pathlib.Path:
    """Return the ``site.yaml`` of the site called ``name``.

    Raises:
        HvdError: there is no such site.
    """
    for directory in _directories():
        if (directory / name / SITE).is_file():
            return directory / name / SITE
    raise HvdError(f"no site is called '{name}'", f"use one of {', '.join(names())}")


def load(name: str) -> Site:
    """Read the site called ``name``.

    Raises:
        HvdError: there is none, or its file is wrong; names file and key.
    """
    path = file(name)
    data = schema.load(path, SCHEMA)
    for key, problem, hint in _faults(data, path.parent.name):
        raise HvdError(f"{shorten(path)}: key '{key}': {problem}", hint)
    for entry, _ in list(_sourced(data)):
        entry["source"] = [data["sources"][name] for name in _listed(entry["source"])]
    for key, entry in data["partitions"].items():
        entry["name"] = key
    for entry in data["environments"].values():
        entry.update(entry.pop("modules", {}))
        entry.setdefault("build", entry.get("run", []))
        entry.setdefault("checked", data["checked"])
    data["refused"] = {key: entry["reason"] for key, entry in data.get("refused", {}).items()}
    data["fabric"] = {case: entry["set"] for case, entry in data.get("fabric", {}).items()}
    return cattrs.structure(data, Site)


def of(environment: str) -> Site:
    """Read the site of the environment called ``environment``, or of its base where derived.

    Raises:
        HvdError: there is no such environment, or its site does not list it.
    """
    chosen = environments.load(environment)
    found = load(chosen.site or LOCAL)
    name = environments.base(chosen)
    if name not in found.environments:
        raise HvdError(
            f"{shorten(file(found.name))}: key 'environments' has no '{name}'",
            "add it, with its partition and operations",
        )
    return found


def _directories() -> List[pathlib.Path]:
    return [directory / environments.SITES for directory in paths.environments()]


def _faults(data: Mapping[str, Any], directory: str) -> Iterator[Tuple[str, str, str]]:
    """Yield what the schema cannot find, names that refer to nothing: key, problem, hint."""
    launcher, allowed, partitions = data["launcher"], data["allowed"], data["partitions"]
    if data["name"] != directory:
        yield "name", f"'{data['name']}' is not the directory's", directory
    if launcher not in allowed:
        yield "launcher", f"'{launcher}' is not in 'allowed'", "add it there"
    for method in data.get("refused", {}):
        if method in allowed:
            yield f"refused:{method}", "is in 'allowed' too", "remove it from one of them"
    for key, entry in data["environments"].items():
        if entry["partition"] not in partitions:
            problem = f"there is no partition '{entry['partition']}'"
            hint = f"use one of {', '.join(partitions)}"
            yield f"environments:{key}:partition", problem, hint
    for successor in data["status"].get("successors", []):
        if successor not in names():
            yield "status:successors", f"there is no site '{successor}'", f"add its {SITE}"
    for key, cited in citations(data):
        if cited not in data["sources"]:
            yield key, f"'{cited}' is not in 'sources'", "add the document"


def citations(data: Any) -> List[Tuple[str, str]]:
    """Return every use of a source below ``data``, with its key."""
    return [(key, cited) for entry, key in _sourced(data) for cited in _listed(entry["source"])]


def _sourced(data: Any, key: str = "") -> Iterator[Tuple[Dict[str, Any], str]]:
    """Yield each mapping below ``data`` that has a source, and the source's key."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for name, value in items:
        here = f"{key}:{name}" if key else str(name)
        if name == "source":
            yield data, here
        elif isinstance(value, (dict, list)):
            yield from _sourced(value, here)


def _listed(value: Any) -> List[str]:
    return [value] if isinstance(value, str) else value
