"""``./hvd bench``."""

from __future__ import annotations

import enum
from typing import List, Optional

from hvd.bench import builds, collectives, page, result, solves
from hvd.build.pipeline import Options
from hvd.cli.common import SOURCES, EnvironmentArgument, SpecOption, chosen, flag, option, takes
from hvd.core import console, paths
from hvd.model import environment


class BenchmarkName(str, enum.Enum):
    """The benchmarks, in the order of the page."""

    builds = "builds"
    solves = "solves"
    collectives = "collectives"


@takes("jobs", "python", *SOURCES, "verbose")
def bench(
    options: Options,
    name: str = EnvironmentArgument,
    only: Optional[List[BenchmarkName]] = option(
        "--only", "Measure this part and keep the others; repeatable.", None
    ),
    repeat: int = option("--repeat N", "How often to time builds and solves.", 1, min=1),
    make_page: bool = flag(
        "--page", "Write docs/performance.md from earlier results; measure nothing."
    ),
    check: bool = flag("--check", "Fail if the page is out of date; write nothing."),
    spec: str = SpecOption,
) -> None:
    """Benchmark builds, concretization and collectives, and write docs/performance.md.

    builds: spack install, a binary cache and the pip engine beside plain pip.  solves: every
    environment beside Spack's builtin recipe.  collectives: Horovod beside mpi4py and PyTorch.
    """
    if not (make_page or check):
        subject = chosen(name, spec)
        measure = {
            "builds": lambda: builds.run(subject, options, repeat),
            "solves": lambda: solves.run(environment.names(), options, repeat),
            "collectives": lambda: collectives.run(subject, options),
        }
        for part in [each.value for each in only or BenchmarkName]:
            # kept at once: the next one takes minutes, and may fail
            console.note(paths.shorten(result.save(measure[part]())))
    for path in page.write(check):
        console.note(paths.shorten(path))
