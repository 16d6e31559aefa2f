"""What was built, in a file of its own: for the commands that come after the build.

Each build writes it beside the activation.  It holds no more than what the environment, the
solution and the installation say, so that publishing needs neither Spack nor an interpreter.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, Dict, Mapping, Tuple

from hvd import paths
from hvd.errors import HvdError
from hvd.files import write_atomically

#: Raised whenever a field is added, removed or changes its meaning.
FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Change:
    """A change of one environment variable.

    Args:
        kind: ``set``, or ``prepend`` or ``append`` for a list.
        name: the variable.
        value: its value, or one entry of the list.
        separator: what is between the list's entries.
    """

    kind: str
    name: str
    value: str
    separator: str = ":"


@dataclasses.dataclass(frozen=True)
class Part:
    """A piece of software: Spack's name of the package, and the version; both may be empty."""

    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


@dataclasses.dataclass(frozen=True)
class Built:
    """A built environment.

    Args:
        environment: its name.
        engine: ``spack`` or ``pip``.
        version: Horovod's.
        frameworks: those that it was built for, as the recipe names them, with their versions;
            empty where that is not known.
        controllers: of ``mpi``, ``gloo``.
        operations: of ``nccl``, ``ddl``, ``ccl``, ``mpi``, ``gloo``, as in the smoke test.
        gpu: ``cuda``, ``rocm`` or empty.
        architectures: the GPU architectures in it, as in the variant.
        gpu_mpi: GPU buffers go through MPI.
        python: version of Python.
        compiler: what compiled it.
        mpi: what it calls; empty without MPI.
        changes: what makes it the active one, in the order in which they are made.
        modules: modules of the externals that it runs with.
        digest: of what the engine made it from; see :func:`check`.
    """

    environment: str
    engine: str
    version: str
    frameworks: Mapping[str, str]
    controllers: Tuple[str, ...]
    operations: Tuple[str, ...]
    gpu: str
    architectures: Tuple[str, ...]
    gpu_mpi: bool
    python: str
    compiler: Part
    mpi: Part
    changes: Tuple[Change, ...]
    modules: Tuple[str, ...]
    digest: str

    @property
    def case(self) -> str:
        """The case of a site's fabric that its operations are; see ``site.schema.json``."""
        if not self.gpu:
            return "cpu"
        if "nccl" in self.operations:
            return "rccl" if self.gpu == "rocm" else "nccl"
        return "ddl" if "ddl" in self.operations else "mpi"


def file(environment: str, engine: str) -> pathlib.Path:
    """Where it stands what was built."""
    return paths.STATE / "built" / f"{environment}-{engine}.json"


def save(built: Built) -> None:
    """Write it down."""
    data = {"format": FORMAT, **dataclasses.asdict(built)}
    text = json.dumps(data, indent=1) + "\n"
    write_atomically(file(built.environment, built.engine), text.encode())


def load(environment: str, engine: str) -> Built:
    """What ``engine`` built of ``environment``.

    Args:
        engine: ``spack`` or ``pip``; ``auto`` for what is there, Spack's first.

    Raises:
        HvdError: nothing was, or it was by another ./hvd than this.
    """
    engines = ["spack", "pip"] if engine == "auto" else [engine]
    found = [path for path in (file(environment, name) for name in engines) if path.is_file()]
    build = f"./hvd build {environment}" + (f" --engine {engine}" if engine != "auto" else "")
    if not found:
        by = f" by {engine}" if engine != "auto" else ""
        raise HvdError(f"{environment} has not been built{by}", f"build it: {build}")
    shown = paths.shorten(found[0])
    try:
        data = json.loads(found[0].read_text())
        if data.pop("format", None) != FORMAT:
            raise HvdError(f"{shown}: key 'format' is not {FORMAT}", f"write it anew: {build}")
        return _made(data)
    except (ValueError, TypeError, KeyError) as error:
        raise HvdError(f"{shown}: {error}", f"write it anew: {build}") from error


def check(built: Built, digest: str) -> None:
    """See that what was built is still there, and is what the environment stands for.

    Args:
        digest: of what the engine would make it from, or has made it from, now.

    Raises:
        HvdError: it is not.
    """
    build = f"./hvd build {built.environment} --engine {built.engine}"
    if digest != built.digest:
        raise HvdError(
            f"{built.environment} has changed since {built.engine} built it",
            f"build it again: {build}",
        )
    for change in built.changes:
        if change.name == "PATH" and not pathlib.Path(change.value).is_dir():
            raise HvdError(
                f"{built.environment} is not whole: there is no {change.value}",
                f"build it again: {build}",
            )


def _made(data: Dict[str, Any]) -> Built:
    lists = ("controllers", "operations", "architectures", "modules")
    return Built(
        **{
            **data,
            **{name: tuple(data[name]) for name in lists},
            "compiler": Part(**data["compiler"]),
            "mpi": Part(**data["mpi"]),
            "changes": tuple(Change(**each) for each in data["changes"]),
        }
    )
