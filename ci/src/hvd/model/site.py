"""The sites: what ``sites/<site>/site.yaml`` says of a machine, ``sites/launchers.yaml`` of all.

Each class is a mapping in the file, each field a key, and ``#:`` says what a key means.  A field
with a default may be left out.  Versions and prefixes of a machine's software are in packages.yaml
in the same directory.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import string
from typing import Any, Dict, Iterator, List, Literal, Mapping, NewType, Optional, Set, Tuple

import cattrs

from hvd.core import paths, schema
from hvd.core.errors import HvdError, nearest
from hvd.core.paths import shorten
from hvd.model import environment as environments

SITE = "site.yaml"
#: Beside the sites: the launch methods and the schedulers.
LAUNCHERS = "launchers.yaml"
#: The site of the environments that include none: this machine.
LOCAL = "local"
_REMEDY = "ci/src/hvd/model/site.py describes every key"

Name = NewType("Name", str)
Word = NewType("Word", str)
Text = NewType("Text", str)
Date = NewType("Date", str)
Since = NewType("Since", str)
Variable = NewType("Variable", str)
Count = NewType("Count", int)
Positive = NewType("Positive", int)
#: {set: variables, source: KEY}; here, the variables alone.
Variables = NewType("Variables", dict)
#: A key of `sources`, or a list of them: the documents that a value is from.
Source = NewType("Source", tuple)
Words = Tuple[Word, ...]
#: Entries of a command, as launchers.yaml describes them.
Template = Tuple[Text, ...]

Case = Literal["always", "nccl", "rccl", "mpi", "ddl", "cpu", "one_node", "many_nodes", "rdma"]

_PATTERNS = {
    Name: (r"[a-z0-9]+(-[a-z0-9]+)*", "lower-case letters and digits, with - between words"),
    Word: (r"\S+", "one word"),
    Text: (r"(?s).*\S.*", "text"),
    Date: (r"\d{4}-\d\d-\d\d", "a date YYYY-MM-DD"),
    Since: (r"\d{4}(-\d\d){0,2}", "YYYY, YYYY-MM or YYYY-MM-DD"),
    Variable: (r"[A-Za-z_][A-Za-z0-9_]*", "the name of a variable"),
}
#: The default of a mapping.
_empty = functools.partial(dataclasses.field, default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Limit:
    max: Positive
    reason: Text  #: a sentence without a full stop
    remedy: Text
    source: Source


@dataclasses.dataclass(frozen=True)
class CpuLimit:
    gpus: Positive  #: of the node that the job uses
    cpus: Positive  #: of the node that the job may use


@dataclasses.dataclass(frozen=True)
class Account:
    source: Source
    needed: bool = False  #: a job must name one
    suffix: Word = ""


@dataclasses.dataclass(frozen=True)
class Pin:
    cores: Positive  #: for the rank, from core 0; the others stay free
    numa: Count  #: the NUMA node whose memory it prefers


@dataclasses.dataclass(frozen=True)
class RankGpu:
    variable: Word  #: names the GPU, such as CUDA_VISIBLE_DEVICES
    local_rank: Word  #: the launcher's variable for the local rank
    order: Tuple[Count, ...]  #: [3, 2, 1, 0] gives GPU 3 to local rank 0
    source: Source


@dataclasses.dataclass(frozen=True)
class Slurm:
    constraint: Word = ""  #: sbatch -C
    partition: Word = ""  #: sbatch -p
    qos: Word = ""  #: sbatch -q
    gpus: Literal["", "--gpus-per-node", "--gres"] = ""  #: none if jobs get whole nodes
    tasks: Literal["--ntasks-per-node", "-n"] = "--ntasks-per-node"  #: asks for ranks
    mem_per_cpu_mb: Count = 0  #: if jobs share nodes
    cpu_bind: Literal["", "cores", "threads", "sockets"] = ""  #: what srun binds ranks to
    head: Words = ()  #: further options of sbatch and salloc
    step: Template = ()  #: further entries of every srun in a job


@dataclasses.dataclass(frozen=True)
class Lsf:
    queue: Word
    slots: Positive  #: of a node
    launch_slots: Count  #: of the launch node, a job's first host, which has no ranks; or 0
    nodes_per_rack: Count = 0


@dataclasses.dataclass(frozen=True)
class Pbs:
    queue: Word
    chunk: Word = ""  #: behind the number of nodes in qsub -l select
    place: Word = ""  #: qsub -l place
    resources: Words = ()  #: further requests, each a qsub -l


@dataclasses.dataclass(frozen=True)
class Partition:
    """A kind of node; a number is 0 where it is unknown."""

    gpus: Count  #: as the scheduler counts them
    source: Source
    name: str = dataclasses.field(default="", metadata=schema.DERIVED)
    gpu: Text = ""  #: the model
    cores: Count = 0  #: that jobs can use
    threads_per_core: Count = 0
    memory_gb: Count = 0
    ranks: Count = 0  #: on a node by default, if not one for each GPU, or 2
    cpus_per_rank: Count = 0  #: as the scheduler counts them: threads, or cores if it hides those
    cpu_limits: Tuple[CpuLimit, ...] = ()  #: where the GPUs of a job limit its CPUs
    account: Account = Account(())
    ranks_per_gpu: Optional[Limit] = None
    rank_gpu: Optional[RankGpu] = None  #: if neither scheduler nor MPI assigns GPUs to ranks
    pin: Optional[Pin] = None  #: where a node's only rank runs, with mpiexec.hydra
    slurm: Slurm = Slurm()
    lsf: Optional[Lsf] = None
    pbs: Optional[Pbs] = None

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
    """A bound for ./hvd check, which measures but does not judge where there is none."""

    operations: Literal["mpi", "gloo", "ccl", "nccl", "ddl", "gpu-mpi"]
    nodes: Literal[1, 2]  #: that the two ranks run on
    bus_mb_s: float  #: bus bandwidth of a float32 sum of the largest size, in 10**6 B/s
    source: Source


@dataclasses.dataclass(frozen=True)
class Checked:
    date: Date
    by: Literal["documents", "rehearsal", "machine"]


@dataclasses.dataclass(frozen=True)
class Make:
    """Externals that the site does not provide: users install them first."""

    packages: Words  #: in packages.yaml
    commands: Tuple[Text, ...]  #: shell, with PREFIX for the prefix
    source: Source


@dataclasses.dataclass(frozen=True)
class Removed:
    """Modules that the site has announced it will remove."""

    date: Date
    modules: Words
    source: Source


@dataclasses.dataclass(frozen=True)
class Loads:
    """Modules; a list of names is one `module load`."""

    run: Tuple[Words, ...]
    source: Source
    build: Optional[Tuple[Words, ...]] = None  #: those of `run` where not given


@dataclasses.dataclass(frozen=True)
class Use:
    """An environment's part of a site."""

    partition: Word
    #: what runs Horovod's operations: mpi with GPUs is GPU-aware MPI, cpu is MPI or Gloo
    operations: Literal["nccl", "rccl", "mpi", "ddl", "cpu"]
    checked: Optional[Checked] = None  #: the site's where not given
    make: Optional[Make] = None
    build: Tuple[Words, ...] = dataclasses.field(default=(), metadata=schema.DERIVED)
    run: Tuple[Words, ...] = dataclasses.field(default=(), metadata=schema.DERIVED)
    bandwidth: Tuple[Bandwidth, ...] = ()
    modules: Optional[Loads] = None

    def least_bandwidth(self, operations: str, nodes: int) -> Optional[Bandwidth]:
        """Return the bound for them; None where the site has no number."""
        wanted = (operations, nodes)
        return next((b for b in self.bandwidth if (b.operations, b.nodes) == wanted), None)


@dataclasses.dataclass(frozen=True)
class Shifter:
    """How srun starts ranks in a container."""

    options: Words  #: of srun
    modules: Words  #: of Shifter


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to start ranks, as launchers.yaml has it and a site's ``allowed`` changes it."""

    line: Template = ()  #: the command line up to the program
    script: Template = ()  #: in a batch script, if not the same
    operations: str = ""  #: what has to carry Horovod's operations; empty for anything
    every_gpu: bool = False  #: starts a rank on every GPU
    needs: Words = ()  #: options of ./hvd launch without which it cannot start
    variables: Mapping[Variable, str] = _empty()
    options: Template = ()  #: {options}: the site's
    forward: Words = ()  #: {forwarded}: variables, with the value of `fabric` if there is one
    transport: Words = ()  #: {transport}: choose mpirun's network layer
    without_rdma: Optional[Words] = None  #: turns RDMA off; --rdma is refused where not given
    shifter: Optional[Shifter] = None  #: with --image
    source: Source = ()

    @property
    def values(self) -> Set[str]:
        """The names of the values in its commands."""
        parsed = (string.Formatter().parse(entry) for entry in (*self.line, *self.script))
        return {name for parts in parsed for _, name, _, _ in parts if name}


@dataclasses.dataclass(frozen=True)
class Scheduler:
    title: str
    first_host: str  #: shell for the host of rank 0, in a job
    shell: str = "#!/bin/bash"  #: the first line of a batch script
    directive: str = ""  #: begins the line of an option in a batch script
    enter: str = ""  #: shell that goes where the job was submitted, unless a job starts there
    submit: str = ""  #: the command that takes a batch script
    account: str = ""  #: the option for the account to charge
    batch: Template = ()
    interactive: Mapping[str, Template] = _empty()  #: by command


@dataclasses.dataclass(frozen=True)
class Launchers:
    methods: Mapping[str, Method]
    schedulers: Mapping[str, Scheduler]


@dataclasses.dataclass(frozen=True)
class Refused:
    reason: Text  #: the end of a sentence
    source: Source


@dataclasses.dataclass(frozen=True)
class Interactive:
    command: Literal["salloc", "srun", "idev", "bsub", "qsub"]
    source: Source
    qos: Word = ""
    gpus: bool = True  #: the command asks for the nodes' GPUs


@dataclasses.dataclass(frozen=True)
class _Set:
    set: Mapping[Variable, str]
    source: Source


@dataclasses.dataclass(frozen=True)
class Pitfall:
    """A fault that other users met, and its remedy."""

    text: Text
    source: Source


@dataclasses.dataclass(frozen=True)
class Status:
    #: live: the site offers what packages.yaml and `modules` name; waiting: an environment for
    #: what it offers is still to come; retired: machine or software is gone, or may be
    state: Literal["live", "waiting", "retired"]
    source: Source
    since: Since = ""
    successors: Tuple[Name, ...] = ()  #: sites that replace it
    waits_for: Text = ""  #: what must come first


@dataclasses.dataclass(frozen=True)
class Modules:
    tool: Literal["lmod", "tcl", "none"]
    #: what must be loaded before further modules are visible; empty for a flat tree
    hierarchy: Tuple[Literal["compiler", "mpi"], ...] = ()
    projection: Text = ""  #: a Spack projection that follows the site's module names
    conflict: Words = ()  #: modules that published modules conflict with, such as another MPI
    source: Source = ()


@dataclasses.dataclass(frozen=True)
class Site:
    """A machine."""

    name: Name
    center: Text  #: who runs it
    status: Status
    checked: Checked  #: when the files were last compared with the sources, and how
    scheduler: Literal["slurm", "lsf", "pbs", "none"]
    launcher: str  #: the default launch method
    allowed: Mapping[str, Method]  #: the launch methods that work
    partitions: Mapping[Word, Partition]
    environments: Mapping[Name, Use]
    modules: Modules
    sources: Mapping[Name, Text]  #: the documents with their dates; 'source' names them
    refused: Mapping[str, Refused] = _empty()  #: methods that do not
    #: environment variables for the network; if several cases apply, the later one wins
    fabric: Mapping[Case, Variables] = _empty()
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


@functools.cache
def _converter() -> cattrs.Converter:
    converter = schema.strict()

    def text(value: Any, kind: Any) -> str:
        pattern, meaning = _PATTERNS[kind]
        if not re.fullmatch(pattern, converter.structure(value, str)):
            raise ValueError(f"'{value}' is not {meaning}")
        return value

    def number(value: Any, kind: Any) -> int:
        least = 1 if kind is Positive else 0
        if converter.structure(value, int) < least:
            raise ValueError(f"{value} is less than {least}")
        return value

    def source(value: Any, _: Any) -> Tuple[str, ...]:
        if not value:
            raise ValueError("names no source")
        return converter.structure([value] if isinstance(value, str) else value, Tuple[Name, ...])

    def variables(value: Any, _: Any) -> Mapping[str, str]:
        return converter.structure(value, _Set).set

    converter.register_structure_hook(Variables, variables)
    for kind in _PATTERNS:
        converter.register_structure_hook(kind, text)
    for kind in (Count, Positive):
        converter.register_structure_hook(kind, number)
    converter.register_structure_hook(Source, source)
    return converter


def names() -> List[str]:
    """Return the names of all sites."""
    return sorted({path.parent.name for each in _directories() for path in each.glob(f"*/{SITE}")})


def file(name: str) -> pathlib.Path:
    """Return the ``site.yaml`` of the site called ``name``."""
    for directory in _directories():
        if (directory / name / SITE).is_file():
            return directory / name / SITE
    raise HvdError(f"no site is called '{name}'", f"use one of {', '.join(names())}")


@functools.cache
def launchers() -> Launchers:
    """Return the launch methods and the schedulers."""
    path = paths.ENVIRONMENTS / environments.SITES / LAUNCHERS
    return schema.structure(Launchers, schema.read(path), path, _REMEDY, _converter())


def load(name: str) -> Site:
    """Read the site called ``name``; an error names file and key."""
    path = file(name)
    data = schema.read(path)
    found = schema.structure(Site, data, path, _REMEDY, _converter())
    for key, problem in _faults(found, data, path.parent.name):
        raise HvdError(f"{shorten(path)}: {key}: {problem}", _REMEDY)
    methods = launchers().methods
    return dataclasses.replace(
        found,
        allowed={
            # what the file says of a method replaces what launchers.yaml says
            key: dataclasses.replace(
                methods.get(key, Method()), **{each: getattr(own, each) for each in given}
            )
            for (key, own), given in zip(found.allowed.items(), data["allowed"].values())
        },
        partitions={
            key: dataclasses.replace(each, name=key) for key, each in found.partitions.items()
        },
        environments={
            key: dataclasses.replace(
                use,
                checked=use.checked or found.checked,
                run=use.modules.run if use.modules else (),
                build=(use.modules.build or use.modules.run) if use.modules else (),
            )
            for key, use in found.environments.items()
        },
    )


def of(environment: str) -> Site:
    """Read the site of the environment called ``environment``, or of its base where derived."""
    chosen = environments.load(environment)
    found = load(chosen.site or LOCAL)
    name = environments.base(chosen)
    if name not in found.environments:
        raise HvdError(
            f"{shorten(file(found.name))}: environments: no '{name}'",
            "add it, with its partition and operations",
        )
    return found


def _directories() -> List[pathlib.Path]:
    return [directory / environments.SITES for directory in paths.environments()]


def _faults(site: Site, data: Mapping[str, Any], directory: str) -> Iterator[Tuple[str, str]]:
    """Yield keys whose names refer to nothing, and what is there for some cases alone."""
    if site.name != directory:
        yield "name", f"'{site.name}' is not the directory's name, {directory}"
    if site.launcher not in site.allowed:
        yield "launcher", f"'{site.launcher}' is not in 'allowed'"
    methods = launchers().methods
    for method in (*site.allowed, *site.refused):
        if method not in methods and not (method in site.allowed and site.allowed[method].line):
            yield f"allowed.{method}", f"no such launch method; {nearest(method, methods)}"
    for method, own in site.allowed.items():
        if not own.source:
            yield f"allowed.{method}.source", "missing"
        if method in site.refused:
            yield f"refused.{method}", "is in 'allowed' too"
    for name, use in site.environments.items():
        if use.partition not in site.partitions:
            hint = nearest(use.partition, site.partitions)
            yield f"environments.{name}.partition", f"no partition '{use.partition}'; {hint}"
    status = site.status
    if status.state == "retired" and not (status.since and "successors" in data["status"]):
        yield "status", "a retired site has 'since' and 'successors'"
    if (status.state == "waiting") != bool(status.waits_for):
        yield "status.waits_for", "a waiting site has it, and no other"
    for successor in set(status.successors) - set(names()):
        yield "status.successors", f"no site '{successor}'"
    for key, cited in citations(data):
        if cited not in site.sources:
            yield key, f"'{cited}' is not in 'sources'"


def citations(data: Any, key: str = "") -> Iterator[Tuple[str, str]]:
    """Yield every use of a source below ``data``, a site's file, with its key."""
    for name, value in data.items() if isinstance(data, dict) else enumerate(data):
        here = f"{key}.{name}".strip(".") if isinstance(data, dict) else f"{key}[{name}]"
        if name == "source":
            yield from ((here, cited) for cited in ([value] if isinstance(value, str) else value))
        elif isinstance(value, (dict, list)):
            yield from citations(value, here)
