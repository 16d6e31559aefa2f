"""The stages in their order: setup, concretize, build, smoke, report."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from typing import Any, Dict, List, Optional, Union

from hvd.build import parts
from hvd.build.engine_pip import PipEngine
from hvd.build.engine_spack import SpackEngine
from hvd.cache.cache import Cache
from hvd.core import console, lock, paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.run import Run, StageFailed
from hvd.host import machine
from hvd.model import built, recipe
from hvd.model.environment import HOROVOD, Environment
from hvd.report import RunReport, write_report
from hvd.smoke.run import Target, smoke_plan
from hvd.solve.spack import Sources

Engine = Union[SpackEngine, PipEngine]
STAGES = ("setup", "concretize", "build", "smoke")
#: Seconds that one launch of the smoke test may take.
SMOKE_TIMEOUT = 180.0


@dataclasses.dataclass(frozen=True)
class Options:
    """What the command line says, the same for every stage."""

    engine: str = "auto"
    sources: Sources = Sources()
    python: str = ""
    jobs: int = 1
    fresh: bool = False
    verbose: bool = False
    ranks: int = 2
    cache: Optional[Cache] = None


def run(environment: Environment, options: Options, last: str = "report") -> Run:
    """Run the stages up to and including ``last``.

    Returns:
        The run, all its stages passed.

    Raises:
        StageFailed: one did not; its error was shown, and the report written.
    """
    process.adopt_orphans()
    with lock.exclusive(paths.STATE / "lock"):
        run = Run(environment.name, options.engine, options.verbose)
        engine: Optional[Engine] = None
        checks: List[Dict[str, Any]] = []
        _refuse(environment)
        try:
            with run.stage("setup"):
                engine = _choose(run, environment, options)
                run.engine = engine.name
                engine.setup(run)
            for name in STAGES[1 : _position(last) + 1]:
                with run.stage(name):
                    if name == "smoke":
                        _smoke(run, engine, options, checks)
                    else:
                        getattr(engine, name)(run)
                    if name == "build":
                        _save_activation(run, engine)
        finally:
            if _position(last) >= _position("smoke"):
                _report(run, environment, engine, checks)
    return run


def _refuse(environment: Environment) -> None:
    """Say at once what Spack would say after minutes.

    Raises:
        StageFailed: the recipe refuses the environment's Horovod; its message was shown.
    """
    # what the file of a site's processors and GPUs gives every package
    configured = ("cuda_arch", "amdgpu_target") if environment.site else ()
    try:
        recipe.load(HOROVOD).refuse(environment.root, configured)
    except HvdError as error:
        console.error(error)
        raise StageFailed("concretize", error) from error


def _choose(run: Run, environment: Environment, options: Options) -> Engine:
    """The engine that is asked for; with ``auto``, Spack where one can be had."""
    common = {"python": options.python, "jobs": options.jobs, "fresh": options.fresh}
    if options.engine == "pip":
        return PipEngine(environment, **common)
    engine = SpackEngine(environment, options.sources, cache=options.cache, **common)
    with run.step("Spack and its packages") as task:
        try:
            engine.locate(task)
        except HvdError as error:
            if options.engine == "spack" or environment.site:
                raise
            task.skipped("none to be had, so pip builds (--spack names one)")
            console.note(error.message)
            return PipEngine(environment, **common)
    return engine


def _save_activation(run: Run, engine: Engine) -> None:
    """Keep what was built, what activates it and what is in it, for what comes after."""
    with run.step("activation") as task:
        done = engine.built(task)
        task.say(paths.shorten(built.save(done)))
    with run.step("bill of materials") as task:
        # its library takes a while to import, which the other commands need not spend
        from hvd.build import bom

        commits = parts.commits(engine.commits())
        found = engine.parts(task)
        path = bom.write(done.environment, engine.name, done.version, found, commits)
        task.say(paths.shorten(path))


def _target(subject: built.Built) -> Target:
    """The Horovod of a built environment, and the environment to run it in."""
    variables = subject.run_environment()
    python = shutil.which("python", path=variables["PATH"])
    return Target(pathlib.Path(python or "python"), variables)


def _smoke(run: Run, engine: Engine, options: Options, checks: List[Dict[str, Any]]) -> None:
    out = run.logs / "smoke" / "ranks"
    stamp.clear(out)
    subject = built.find(engine.environment.name, engine.name)
    failures: List[str] = []
    plan = smoke_plan(
        _target(subject),
        engine.expectation(),
        out,
        ranks=options.ranks,
        timeout=SMOKE_TIMEOUT,
        mpi4py="mpi4py" in engine.found["distributions"],
        gpu=subject.case if subject.gpu else "",
    )
    for name, perform in plan:
        with run.step(name) as task:
            check = perform()
            checks.append(check.to_dict())
            if check.failures:
                task.failed(check.failures[0])
            failures += [f"{name}: {failure}" for failure in check.failures]
    if failures:
        raise HvdError("\n  ".join(failures), "the report names the log of each check")


def _report(
    run: Run, environment: Environment, engine: Optional[Engine], checks: List[Dict[str, Any]]
) -> None:
    with run.stage("report"), run.step("report") as task:
        solved = _passed(run, "concretize")
        report = RunReport(
            environment=run.environment,
            engine=run.engine,
            started=run.started,
            specs=environment.specs,
            versions=engine.versions() if engine and solved else {},
            host=machine.describe(),
            dag=engine.dag() if engine and solved else [],
            commits=parts.commits(engine.commits()) if engine and solved else {},
            bom=_bom(engine) if engine and _passed(run, "build") else "",
            stages=[stage for stage in run.stages if stage.name != "report"],
            checks=checks,
        )
        written = write_report(report, directory(run))
        task.say(paths.shorten(next(path for path in written if path.suffix == ".md")))


def _passed(run: Run, stage: str) -> bool:
    return any(each.name == stage and each.status != "failed" for each in run.stages)


def _bom(engine: Engine) -> str:
    """The bill of materials of what was built."""
    return str(parts.file(engine.environment.name, engine.name))


def directory(run: Run) -> pathlib.Path:
    """Where the report of ``run`` goes."""
    return paths.STATE / "reports" / paths.key(run.environment, run.engine)


def _position(stage: str) -> int:
    return [*STAGES, "report"].index(stage)
