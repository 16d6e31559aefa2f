"""Concretize several environments, as many at a time as there are cores."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from typing import Any, List, Mapping, Optional, Tuple

from hvd.build import engine_spack
from hvd.build.engine_spack import SpackEngine, SpackSolution
from hvd.build.pipeline import Options
from hvd.core import console, lock, paths
from hvd.core.errors import HvdError
from hvd.core.run import Run, StageFailed
from hvd.core.steps import Step
from hvd.host import machine
from hvd.model import environment
from hvd.model.environment import Environment
from hvd.model.versions import Pair
from hvd.report import report_stage
from hvd.solve import kept
from hvd.solve.spack import Spack

#: What stands in for the name of one environment.
NAME = "all"
#: An engine, and what its setup found.
_Task = Tuple[SpackEngine, Mapping[str, Any]]
#: The step to show, and the solution or the error.
_Result = Tuple[Step, Optional[SpackSolution], Optional[HvdError]]


def run(names: List[str], options: Options) -> List[SpackSolution]:
    """Concretize the environments ``names`` and write a report with the time of each.

    Returns:
        A solution for each, in the order of ``names``.

    Raises:
        StageFailed: there is no Spack, or at least one environment has no solution; all were
            tried.
    """
    subjects = [environment.load(name) for name in names]
    current = Run(NAME, "spack", options.verbose)
    with lock.exclusive(paths.state() / "lock"):
        with current.stage("setup"):
            with current.step("Spack and its packages") as task:
                spack = engine_spack.locate(options.sources, task)
            tasks = set_up(subjects, spack, options, current)
        try:
            with current.stage("concretize") as stage:
                results = solve_each(tasks)
                stage.steps += sorted((step for step, _, _ in results), key=lambda s: s.name)
                failed = [step.name for step in stage.steps if step.status == "failed"]
                if failed:
                    raise HvdError(
                        f"{len(failed)} of {len(stage.steps)} environments have no right "
                        f"solution: {', '.join(failed)}",
                        "their errors stand above",
                    )
        finally:
            _report(current, spack.pair)
    return [solution for _, solution, _ in results if solution]


def set_up(
    subjects: List[Environment], spack: Spack, options: Options, current: Run
) -> List[_Task]:
    """An engine for each environment, set up, and what it found.

    Environments of sites take nothing from this machine, so that one setup does for all.
    """
    common = {"python": options.python, "jobs": options.jobs, "fresh": options.fresh}
    engines = [SpackEngine(subject, spack, **common) for subject in subjects]
    local = [engine for engine in engines if not engine.environment.site]
    found = {each.environment.name: each.setup(current) for each in local or engines[:1]}
    return [(engine, found.get(engine.environment.name, {})) for engine in engines]


def keep(names: List[str], options: Options, check: bool) -> None:
    """Keep the solutions of sites' environments, or compare them with those that are kept.

    Args:
        names: of the environments.
        options: as for :func:`run`.
        check: compare, and write nothing.

    Raises:
        HvdError: with ``check``, a solution differs from the one that is kept; an environment
            takes what this machine has, and so has no solution to keep.
    """
    local = [name for name in names if not environment.load(name).site]
    if local:
        raise HvdError(
            f"{local[0]} has another solution on each machine",
            "name the environment of a site: " + ", ".join(environment.of_sites()),
        )
    differences = []
    for solution in run(names, options):
        subject = solution.environment
        made = kept.make(subject, solution.specs, solution.engine.spack.pair)
        if check:
            differences += kept.difference(subject, made)
        else:
            kept.write(subject, made)
    if differences:
        raise HvdError(
            "\n".join(["solutions have changed:", *differences]), "if this is meant: ./hvd lock"
        )


def solve_each(tasks: List[_Task]) -> List[_Result]:
    """Solve each in a process of its own, which alone ends what it has started.

    Returns:
        A result for each, in order; the errors were shown.
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(machine.cores(), context) as pool:
        futures = [pool.submit(solve, *task) for task in tasks]
        for future in concurrent.futures.as_completed(futures):
            step, _, error = future.result()
            console.verdict(step)
            if error:
                console.error(error)
    return [future.result() for future in futures]


def solve(engine: SpackEngine, found: Mapping[str, Any]) -> _Result:
    """Solve one environment without output."""
    console.out.quiet = console.err.quiet = True
    name = engine.environment.name
    current = Run(name, engine.name)
    solution, error = None, None
    try:
        with current.stage("concretize"):
            solution = engine.concretize(current, found)
    except StageFailed as failure:
        error = failure.error
    step = current.stages[-1].steps[-1]
    step.name = name
    return step, solution, error


def _report(current: Run, pair: Pair) -> None:
    engine = f"Spack {pair.spack.version} with packages {pair.packages.version}"
    report_stage(
        current,
        paths.state() / "reports" / f"{NAME}-{pair.name}",
        lambda: {"environment": "every environment", "engine": engine},
    )
