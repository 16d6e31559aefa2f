"""The sites: what ``environments/sites/<site>/site.yaml`` says of a machine.

The form is in ``site.schema.json``, with the meaning and unit of each key.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from hvd.core import paths, schema
from hvd.core.errors import HvdError
from hvd.core.paths import shorten

SCHEMA = pathlib.Path(__file__).resolve().with_name("site.schema.json")
SITE = "site.yaml"


@dataclasses.dataclass(frozen=True)
class Limit:
    """The most ranks that may share a GPU, and why."""

    max: int
    reason: str
    remedy: str


@dataclasses.dataclass(frozen=True)
class Pin:
    """Cores and NUMA node of the one rank of a node."""

    cores: int
    numa: int


@dataclasses.dataclass(frozen=True)
class Slurm:
    """How Slurm is asked for the nodes of a partition; memory in MB."""

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
    """How LSF is asked for the nodes of a partition."""

    queue: str
    slots: int
    launch_slots: int
    nodes_per_rack: int = 0


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
    ranks_per_gpu: Optional[Limit] = None
    pin: Optional[Pin] = None
    slurm: Slurm = dataclasses.field(default_factory=Slurm)
    lsf: Optional[Lsf] = None
    source: Tuple[str, ...] = ()

    @property
    def default_ranks(self) -> int:
        """Ranks on a node where none are asked for: the GPUs, or two for CPUs."""
        return self.ranks or self.gpus or 2


@dataclasses.dataclass(frozen=True)
class Bandwidth:
    """The least bus bandwidth of a two-rank allreduce, in 10**6 B/s; see the schema."""

    operations: str
    nodes: int
    bus_mb_s: float
    source: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Use:
    """What an environment uses of a site: a partition, operations, modules to load."""

    partition: str
    operations: str
    build: Tuple[Tuple[str, ...], ...] = ()
    run: Tuple[Tuple[str, ...], ...] = ()
    bandwidth: Tuple[Bandwidth, ...] = ()

    def least_bandwidth(self, operations: str, nodes: int) -> Optional[Bandwidth]:
        """What is to be reached there; None where the site has no number for it."""
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
    """How nodes are asked for to type commands on them."""

    command: str
    qos: str = ""
    gpus: bool = True


@dataclasses.dataclass(frozen=True)
class Pitfall:
    """What went wrong for others, and the documents that say so."""

    text: str
    source: Tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Status:
    """Whether a machine is in service, and since when; its users' new sites."""

    state: str
    since: str = ""
    successors: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Modules:
    """The module tool, how the site names what it publishes, and what must not be beside it."""

    tool: str
    hierarchy: Tuple[str, ...] = ()
    projection: str = ""
    conflict: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Site:
    """A machine.

    Args:
        allowed: the launch methods that work there, with their settings.
        refused: those that do not, with the reason.
        fabric: environment variables by case; see the schema.
    """

    name: str
    center: str
    status: Status
    scheduler: str
    launcher: str
    allowed: Mapping[str, Settings]
    refused: Mapping[str, str]
    interactive: Optional[Interactive]
    partitions: Mapping[str, Partition]
    environments: Mapping[str, Use]
    fabric: Mapping[str, Mapping[str, str]]
    modules: Modules
    pitfalls: Tuple[Pitfall, ...]
    sources: Mapping[str, str]

    def variables(
        self, operations: str, nodes: Optional[int] = None, rdma: bool = False
    ) -> Dict[str, str]:
        """The fabric's environment variables for a job on ``nodes`` nodes; None for any job."""
        found: Dict[str, str] = {}
        cases = ["always", operations]
        if nodes is not None:
            cases.append("one_node" if nodes == 1 else "many_nodes")
        for case in cases + ["rdma"] * rdma:
            found.update(self.fabric.get(case, {}))
        return found

    def known_variables(self) -> List[str]:
        """The names of all variables that some case has a value for."""
        return [name for case in self.fabric.values() for name in case]


def names() -> List[str]:
    """The names of all sites."""
    return sorted(path.parent.name for path in directory().glob(f"*/{SITE}"))


def directory() -> pathlib.Path:
    """Where the sites are."""
    return paths.ENVIRONMENTS / "sites"


def load(name: str) -> Site:
    """The site called ``name``.

    Raises:
        HvdError: there is none, or its file is not as it should be; names file and key.
    """
    file = directory() / name / SITE
    if not file.is_file():
        raise HvdError(f"no site is called '{name}'", f"use one of {', '.join(names())}")
    data = schema.load(file, SCHEMA)
    _check(data, file)
    return _site(data)


def of(environment: str) -> Site:
    """The site that has ``environment`` in its table.

    Raises:
        HvdError: no site has, or two.
    """
    found = [site for site in map(load, names()) if environment in site.environments]
    if not found:
        known = sorted(name for each in names() for name in load(each).environments)
        raise HvdError(
            f"no site has an environment called '{environment}'",
            f"use one of {', '.join(known)}; or add it to 'environments' of a site's {SITE}",
        )
    if len(found) > 1:
        files = [shorten(directory() / site.name / SITE) for site in found]
        raise HvdError(
            f"{' and '.join(files)}: key 'environments:{environment}' is in both",
            "an environment is for one site: take it out of the others",
        )
    return found[0]


def _check(data: Dict[str, Any], file: pathlib.Path) -> None:
    """What the schema cannot say: that names refer to something."""

    def wrong(key: str, what: str, remedy: str) -> HvdError:
        return HvdError(f"{shorten(file)}: key '{key}': {what}", remedy)

    if data["name"] != file.parent.name:
        raise wrong("name", f"'{data['name']}' is not the directory's", f"{file.parent.name}")
    if data["launcher"] not in data["allowed"]:
        raise wrong("launcher", f"'{data['launcher']}' is not in 'allowed'", "add it there")
    for method in sorted(set(data["allowed"]) & set(data.get("refused", {}))):
        raise wrong(f"refused:{method}", "is in 'allowed' too", "take it out of one of them")
    for name, entry in data["environments"].items():
        if entry["partition"] not in data["partitions"]:
            raise wrong(
                f"environments:{name}:partition",
                f"there is no partition '{entry['partition']}'",
                f"use one of {', '.join(data['partitions'])}",
            )
    for successor in data["status"].get("successors", []):
        if not (file.parent.parent / successor / SITE).is_file():
            raise wrong(
                "status:successors", f"there is no site '{successor}'", "add its site.yaml"
            )
    for key, cited in citations(data):
        if cited not in data["sources"]:
            raise wrong(key, f"'{cited}' is not in 'sources'", "add the document there")


def citations(data: Any, key: str = "") -> List[Tuple[str, str]]:
    """Every use of a source below ``data``, with its key."""
    found = []
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for name, value in items:
        here = f"{key}:{name}" if key else str(name)
        if name == "source":
            found += [(here, cited) for cited in _listed(value)]
        elif isinstance(value, (dict, list)):
            found += citations(value, here)
    return found


def _listed(value: Union[str, List[str], None]) -> List[str]:
    return [value] if isinstance(value, str) else list(value or ())


def _site(data: Dict[str, Any]) -> Site:
    documents = data["sources"]

    def cited(entry: Dict[str, Any]) -> Tuple[str, ...]:
        return tuple(documents[name] for name in _listed(entry.get("source")))

    return Site(
        name=data["name"],
        center=data["center"],
        status=_made(Status, data["status"]),
        scheduler=data["scheduler"],
        launcher=data["launcher"],
        allowed={name: _made(Settings, each) for name, each in data["allowed"].items()},
        refused={name: each["reason"] for name, each in data.get("refused", {}).items()},
        interactive=_made(Interactive, data["interactive"]) if "interactive" in data else None,
        partitions={
            name: _partition(name, each, cited(each)) for name, each in data["partitions"].items()
        },
        environments={name: _use(each, cited) for name, each in data["environments"].items()},
        fabric={case: each["set"] for case, each in data.get("fabric", {}).items()},
        modules=_made(Modules, data["modules"]),
        pitfalls=tuple(Pitfall(each["text"], cited(each)) for each in data.get("pitfalls", [])),
        sources=documents,
    )


def _made(kind: Any, entry: Dict[str, Any], **changes: Any) -> Any:
    """A ``kind`` with what ``entry`` says, lists as tuples; ``changes`` come first."""
    values = {
        field.name: tuple(entry[field.name])
        if isinstance(entry[field.name], list)
        else entry[field.name]
        for field in dataclasses.fields(kind)
        if field.name in entry
    }
    return kind(**{**values, **changes})


def _partition(name: str, entry: Dict[str, Any], source: Tuple[str, ...]) -> Partition:
    changes: Dict[str, Any] = {"name": name, "source": source}
    kinds = {"slurm": Slurm, "lsf": Lsf, "ranks_per_gpu": Limit, "pin": Pin}
    for key, kind in kinds.items():
        if key in entry:
            changes[key] = _made(kind, entry[key])
    return _made(Partition, entry, **changes)


def _use(entry: Dict[str, Any], cited: Callable[[Dict[str, Any]], Tuple[str, ...]]) -> Use:
    modules = entry.get("modules", {})
    run = tuple(map(tuple, modules.get("run", ())))
    build = tuple(map(tuple, modules["build"])) if "build" in modules else run
    bandwidth = tuple(
        _made(Bandwidth, each, source=cited(each)) for each in entry.get("bandwidth", ())
    )
    return Use(entry["partition"], entry["operations"], build, run, bandwidth)
