"""Concretize every environment, as many at a time as there are cores."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from typing import List, Optional, Tuple

from hvd.build.engine_spack import SpackEngine
from hvd.build.pipeline import Options
from hvd.core import console, lock, paths
from hvd.core.errors import HvdError
from hvd.core.run import Run, StageFailed
from hvd.core.steps import Step
from hvd.host import machine
from hvd.model import environment
from hvd.report import RunReport, write_report
from hvd.solve import dag_table
from hvd.solve.spack import Spack

#: What stands in for the name of one environment.
NAME = "all"


def run(names: List[str], options: Options) -> List[SpackEngine]:
    """Concretize the environments ``names`` and write a report with the time of each.

    Returns:
        An engine for each, in the order of ``names``.

    Raises:
        StageFailed: Spack could not be had, or at least one environment has no solution; all
            were tried.
    """
    current = Run(NAME, "spack", options.verbose)
    engines = [_engine(name, options) for name in names]
    with lock.exclusive(paths.STATE / "lock"):
        with current.stage("setup"):
            with current.step("Spack and its packages") as task:
                engines[0].locate(task)
            for engine in engines:
                engine.spack = engines[0].spack
            # those that take something from this machine find it; the others need a Spack alone
            for engine in [e for e in engines if not e.environment.site] or engines[:1]:
                engine.setup(current)
        try:
            with current.stage("concretize") as stage:
                stage.steps += _solve(engines)
                failed = [step.name for step in stage.steps if step.status == "failed"]
                if failed:
                    raise HvdError(
                        f"{len(failed)} of {len(stage.steps)} environments have no right "
                        f"solution: {', '.join(failed)}",
                        "what is wrong with each stands above",
                    )
        finally:
            _report(current, engines[0].spack)
    return engines


def keep(names: List[str], options: Options, check: bool) -> None:
    """Keep the solutions of sites' environments as tables, or compare them.

    Args:
        names: of the environments.
        options: as for :func:`run`.
        check: compare alone.

    Raises:
        HvdError: with ``check``, a solution is another than the one that is kept; an environment
            takes what this machine has, and so has no solution to keep.
    """
    local = [name for name in names if not environment.load(name).site]
    if local:
        raise HvdError(
            f"{local[0]} has another solution on each machine",
            "name the environment of a site: " + ", ".join(environment.of_sites()),
        )
    problems = []
    for engine in run(names, options):
        text = dag_table.render(engine.environment, engine.dag(), engine.spack.pair)
        difference = dag_table.difference(engine.environment, text)
        if not check:
            dag_table.write(engine.environment, text)
        elif difference:
            problems += difference
    if problems:
        raise HvdError(
            "\n".join(["solutions have changed:", *problems]), "if this is meant: ./hvd lock"
        )


def _engine(name: str, options: Options) -> SpackEngine:
    return SpackEngine(
        environment.load(name),
        options.sources,
        python=options.python,
        jobs=options.jobs,
        fresh=options.fresh,
    )


def _solve(engines: List[SpackEngine]) -> List[Step]:
    """Solve each in a process of its own, which alone ends what it has started."""
    steps: List[Step] = []
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(machine.cores(), context) as pool:
        futures = [pool.submit(solve, engine) for engine in engines]
        for future in concurrent.futures.as_completed(futures):
            step, error = future.result()
            console.verdict(step.name, step.seconds, step.status, step.detail)
            if error:
                console.error(error, getattr(error, "tail", ""))
            steps.append(step)
    return sorted(steps, key=lambda step: step.name)


def solve(engine: SpackEngine) -> Tuple[Step, Optional[HvdError]]:
    """Solve one environment, in silence; what went wrong, if anything did."""
    console.out.quiet = console.err.quiet = True
    name = engine.environment.name
    current = Run(name, engine.name)
    error = None
    try:
        with current.stage("concretize"):
            engine.concretize(current)
    except StageFailed as failure:
        error = failure.error
    step = current.stages[-1].steps[-1]
    step.name = name
    return step, error


def _report(current: Run, spack: Spack) -> None:
    with current.stage("report"), current.step("report") as task:
        pair = spack.pair
        report = RunReport(
            environment="every environment",
            engine=f"Spack {pair.spack.version} with packages {pair.packages.version}",
            started=current.started,
            host=machine.describe(),
            stages=[stage for stage in current.stages if stage.name != "report"],
        )
        directory = paths.STATE / "reports" / f"{NAME}-{pair.name}"
        write_report(report, directory)
        task.say(paths.shorten(directory / "report.md"))
