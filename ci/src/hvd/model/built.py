"""The record of a build, which the commands that come after it read.

Each build writes one.  It repeats what the environment, the solution and the installation say, so
that those commands need neither Spack nor an interpreter.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Dict, List, Mapping, Tuple

from hvd.core import paths, process, schema, stamp
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.model import environment as environments
from hvd.model.check_build import Expectation
from hvd.model.environment import Environment

#: The engines, in the order in which a build is looked for.
ENGINES = ("spack", "pip")
#: Raised whenever a field is added, removed or changes its meaning.
FORMAT = 3


@dataclasses.dataclass(frozen=True)
class Modification:
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
class Software:
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
        nccl_link: how NCCL was to be linked, ``shared`` or ``static``; empty without NCCL.
        gpu: ``cuda``, ``rocm`` or empty.
        architectures: the GPU architectures in it, as in the variant.
        gpu_mpi: GPU buffers go through MPI.
        target: the processor that it was compiled for, as archspec names it.
        python: version of Python.
        compiler: what compiled it.
        mpi: what it calls; empty without MPI.
        changes: what makes it the active one, in the order in which they are made.
        variables: those that activate it as the engine does, with their whole values; for
            programs that need nothing of the caller's shell.
        modules: modules of the externals that it runs with.
        inputs: a digest of each of our files that decided what was built, by its path.
        digest: of what the engine made it from; see :func:`digest`.
    """

    environment: str
    engine: str
    version: str
    frameworks: Mapping[str, str]
    controllers: Tuple[str, ...]
    operations: Tuple[str, ...]
    nccl_link: str
    gpu: str
    architectures: Tuple[str, ...]
    gpu_mpi: bool
    target: str
    python: str
    compiler: Software
    mpi: Software
    changes: Tuple[Modification, ...]
    variables: Mapping[str, str]
    modules: Tuple[str, ...]
    inputs: Mapping[str, str]
    digest: str

    @property
    def name(self) -> str:
        """The name of its files: ``<environment>-<engine>``."""
        return paths.key(self.environment, self.engine)

    @property
    def directory(self) -> pathlib.Path:
        """The directory of the files that activate it."""
        return activation(self.environment, self.engine)

    @property
    def again(self) -> str:
        """The command that builds it again."""
        return f"./hvd build {self.environment} --engine {self.engine}"

    @property
    def expectation(self) -> Expectation:
        """The expected output of ``horovodrun --check-build``."""
        return Expectation.of(self.version, self.frameworks, self.controllers, self.operations)

    def changed(self) -> List[str]:
        """Return the files that decided what was built and have changed since."""
        now = inputs(environments.load(self.environment), self.engine)
        return sorted(
            name for name in {*now, *self.inputs} if now.get(name) != self.inputs.get(name)
        )

    def run_environment(self) -> Dict[str, str]:
        """Return the whole environment for its programs, without what the caller's shell adds."""
        return {**process.clean_environment(), **self.variables}

    @property
    def case(self) -> str:
        """The case of a site's fabric that its operations belong to; see `hvd.model.site`."""
        if not self.gpu:
            return "cpu"
        if "nccl" in self.operations:
            return "rccl" if self.gpu == "rocm" else "nccl"
        return "ddl" if "ddl" in self.operations else "mpi"


def file(environment: str, engine: str) -> pathlib.Path:
    """Return the file of the record."""
    return paths.state() / "built" / f"{paths.key(environment, engine)}.json"


def activation(environment: str, engine: str) -> pathlib.Path:
    """Return the directory of the files that activate it."""
    return paths.state() / "activation" / paths.key(environment, engine)


def inputs(environment: Environment, engine: str) -> Dict[str, str]:
    """Return a digest of each file that decides what ``engine`` builds, by its path."""
    files = [*environment.inputs(), environment.externals]
    files += [environment.lockfile] if engine == "spack" else []
    whole = [file for path in files if path.exists() for file in stamp.files(path)]
    return {paths.shorten(file): stamp.of(file) for file in whole}


def save(built: Built) -> pathlib.Path:
    """Write the record, and return its file."""
    data = {"format": FORMAT, **dataclasses.asdict(built)}
    text = json.dumps(data, indent=1) + "\n"
    path = file(built.environment, built.engine)
    write_atomically(path, text.encode())
    return path


def find(environment: str, engine: str = "auto") -> Built:
    """Read the record of ``environment``.

    Args:
        engine: ``spack`` or ``pip``; ``auto`` for the one that is there, Spack's first.
    """
    environments.load(environment)
    engines = ENGINES if engine == "auto" else [engine]
    found = [path for path in (file(environment, name) for name in engines) if path.is_file()]
    build = f"./hvd build {environment}" + (f" --engine {engine}" if engine != "auto" else "")
    if not found:
        by = f" by {engine}" if engine != "auto" else ""
        raise HvdError(f"{environment} has not been built{by}", f"build it: {build}")
    remedy = f"build it again: {build}"
    try:
        data = json.loads(found[0].read_text())
    except ValueError as error:
        raise HvdError(f"{paths.shorten(found[0])}: {error}", remedy) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        shown = paths.shorten(found[0])
        raise HvdError(f"{shown}: key 'format' is not {FORMAT}", remedy)
    return schema.structure(Built, data, found[0], remedy)


def digest(environment: Environment, engine: str) -> str:
    """Return a digest of what ``engine`` builds from; of nothing while a build is not whole."""
    if engine == "spack":
        return stamp.of(environment.lockfile)
    return stamp.of(paths.state() / "pip" / environment.name / "stamp")


def find_current(environment: str, engine: str = "auto") -> Built:
    """Read the record of ``environment``, as :func:`find` does, of a build that still holds."""
    found = find(environment, engine)
    problem = ""
    if digest(environments.load(environment), found.engine) != found.digest:
        problem = f"has changed since {found.engine} built it"
    for change in found.changes:
        if change.name == "PATH" and not pathlib.Path(change.value).is_dir():
            problem = problem or f"is not whole: there is no {change.value}"
    if problem:
        raise HvdError(f"{environment} {problem}", f"build it again: {found.again}")
    return found
