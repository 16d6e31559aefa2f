"""Concretize several environments, as many at a time as there are cores; keep their solutions."""

from __future__ import annotations

import concurrent.futures
import difflib
import multiprocessing
from typing import Any, List, Mapping, Optional, Tuple

from hvd.core import console, lock, paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.options import Options
from hvd.core.run import Run, StageFailed
from hvd.core.steps import Step
from hvd.engines import engine_spack
from hvd.engines.engine_spack import SpackEngine, SpackSolution
from hvd.host import machine
from hvd.model import environment
from hvd.model.environment import Environment
from hvd.solve import kept
from hvd.solve.spack import Spack


def run(names: List[str], options: Options) -> List[SpackSolution]:
    """Concretize the environments ``names``; return a solution for each, in that order."""
    subjects = [environment.load(name) for name in names]
    current = Run("all", "spack", options.verbose)
    with lock.exclusive(paths.state() / "lock"):
        with current.stage("setup"):
            with current.step("Spack and its packages") as task:
                spack = engine_spack.locate(options.sources, task)
            tasks = set_up(subjects, spack, options, current)
        with current.stage("concretize"):
            # each in a process of its own, which ends what it starts and nothing else
            context = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(machine.cores(), context) as pool:
                futures = [pool.submit(_solve, *task) for task in tasks]
                for future in concurrent.futures.as_completed(futures):
                    step, _, error = future.result()
                    console.verdict(step)
                    if error:
                        console.error(error)
            results = [future.result() for future in futures]
            failed = [step.name for step, _, error in results if error]
            if failed:
                raise HvdError(f"{len(failed)} of {len(names)} failed: {', '.join(failed)}")
    return [solution for _, solution, _ in results if solution]


def set_up(
    subjects: List[Environment], spack: Spack, options: Options, current: Run
) -> List[Tuple[SpackEngine, Mapping[str, Any]]]:
    """An engine for each environment, set up, and what it found."""
    common = {"python": options.python, "jobs": options.jobs, "fresh": options.fresh}
    engines = [SpackEngine(subject, spack, **common) for subject in subjects]
    # a site's environment takes nothing from this machine, so one setup does for all of them
    local = [engine for engine in engines if not engine.environment.site]
    found = {each.environment.name: each.setup(current) for each in local or engines[:1]}
    return [(engine, found.get(engine.environment.name, {})) for engine in engines]


def _solve(
    engine: SpackEngine, found: Mapping[str, Any]
) -> Tuple[Step, Optional[SpackSolution], Optional[HvdError]]:
    """Solve without output; return the step to show, and the solution or the error."""
    console.out.quiet = console.err.quiet = True
    current = Run(engine.environment.name, engine.name)
    solution, error = None, None
    try:
        with current.stage("concretize"):
            solution = engine.concretize(current, found)
    except StageFailed as failure:
        error = failure.error
    step = current.stages[-1].steps[-1]
    step.name = engine.environment.name
    return step, solution, error


def keep(names: List[str], options: Options, check: bool) -> None:
    """Keep the solutions of sites' environments; with ``check`` only compare."""
    local = [name for name in names if not environment.load(name).site]
    if local:
        raise HvdError(
            f"{local[0]} has another solution on each machine",
            f"name environments of sites: {', '.join(environment.of_sites())}",
        )
    changes: List[str] = []
    for solution in run(names, options):
        subject = solution.environment
        made = kept.make(subject, solution.specs, solution.engine.spack.pair).text
        file = kept.file(subject)
        if not check:
            write_atomically(file, made.encode())
            continue
        before = file.read_text().splitlines() if file.exists() else []
        shown = paths.shorten(file)
        changes += difflib.unified_diff(before, made.splitlines(), shown, "solved", lineterm="")
    if changes:
        raise HvdError(
            "\n".join(["solutions changed:", *changes]), "to accept them: ./hvd dev lock"
        )
