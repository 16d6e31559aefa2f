"""``./hvd bench``."""

from __future__ import annotations

import enum
from typing import List, Optional

import typer

from hvd.bench import allreduce, builds, page, result, solves
from hvd.build.pipeline import Options
from hvd.cli.common import (
    EnvironmentArgument,
    JobsOption,
    PackagesOption,
    PairOption,
    PythonOption,
    SpackOption,
    SpecOption,
    VerboseOption,
    WrapperOption,
    chosen,
)
from hvd.core import console, paths
from hvd.host import machine
from hvd.model import environment
from hvd.solve.spack import Sources


class PartName(str, enum.Enum):
    """What can be measured, in the order of the page."""

    builds = "builds"
    solves = "solves"
    allreduce = "allreduce"


def bench(
    name: str = EnvironmentArgument,
    only: Optional[List[PartName]] = typer.Option(
        None, "--only", help="Measure this part and keep the others; repeatable."
    ),
    repeat: int = typer.Option(
        1, "--repeat", min=1, metavar="N", help="How often to time builds and solves."
    ),
    make_page: bool = typer.Option(
        False, "--page", help="Write docs/performance.md from earlier results; measure nothing."
    ),
    check: bool = typer.Option(
        False, "--check", help="Fail if the page is out of date; write nothing."
    ),
    spec: str = SpecOption,
    jobs: int = JobsOption,
    python: str = PythonOption,
    spack: str = SpackOption,
    packages: str = PackagesOption,
    compiler_wrapper: str = WrapperOption,
    pair: str = PairOption,
    verbose: bool = VerboseOption,
) -> None:
    """Benchmark builds, concretization and allreduces, and write docs/performance.md.

    builds: spack install, a binary cache and the pip engine beside plain pip.  solves: every
    environment beside Spack's builtin recipe.  allreduce: Horovod beside mpi4py and PyTorch.
    """  # fmt: skip
    if not (make_page or check):
        options = Options(
            sources=Sources(spack, packages, compiler_wrapper, pair),
            python=python,
            jobs=jobs or machine.cores(),
            verbose=verbose,
        )
        subject = chosen(name, spec)
        measure = {
            "builds": lambda: builds.run(subject, options, repeat),
            "solves": lambda: solves.run(environment.names(), options, repeat),
            "allreduce": lambda: allreduce.run(subject, options),
        }
        for part in [each.value for each in only or PartName]:
            # kept at once: the next one takes minutes, and may fail
            console.note(paths.shorten(result.save(measure[part]())))
    for path in page.write(check):
        console.note(paths.shorten(path))
