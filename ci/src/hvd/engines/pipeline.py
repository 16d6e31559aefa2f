"""The stages in their order: setup, concretize, build, smoke, report."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Protocol, Tuple

from hvd.core import check, console, lock, paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.options import Options, Sources
from hvd.core.run import Run
from hvd.core.steps import Step
from hvd.engines import components, engine_spack
from hvd.engines.engine_pip import PipEngine
from hvd.engines.engine_spack import SpackEngine
from hvd.host import machine
from hvd.model import built
from hvd.model.built import Built
from hvd.model.environment import Environment
from hvd.model.solution import DagNode
from hvd.report import report_stage
from hvd.smoke.run import Check, Target, smoke_plan


class Solution(Protocol):
    """A Horovod whose version, variants and dependencies are fixed."""

    engine: Engine

    def build(self, run: Run) -> None:
        """Build and install it, unless that was done from the same."""

    def record(self, task: Step) -> Tuple[Built, List[components.Component]]:
        """Return the record of the build, and the parts that it consists of."""

    def versions(self) -> Dict[str, str]:
        """Return the versions that the report names."""

    def dag(self) -> List[DagNode]:
        """Return the packages as nodes."""

    def tree(self, log: pathlib.Path) -> str:
        """Return the packages as lines for people."""


class Engine(Protocol):
    """What builds an environment: `SpackEngine` or `PipEngine`."""

    name: str

    def setup(self, run: Run) -> Mapping[str, Any]:
        """Find what this machine has; see :func:`hvd.host.externals.ask`."""

    def concretize(self, run: Run, found: Mapping[str, Any]) -> Solution:
        """Fix version, variants and dependencies; ``found`` is what `setup` returned."""

    def commits(self) -> Dict[str, str]:
        """Return the commits of what builds, by name."""


#: Seconds that one launch of the smoke test may take.
SMOKE_TIMEOUT = 180.0
#: How much longer, where programs are emulated; TensorFlow and its Keras need most of it.
_EMULATED = 10


@dataclasses.dataclass
class Outcome:
    """The results of the stages, as far as they got."""

    run: Run
    engine: Optional[Engine] = None
    solution: Optional[Solution] = None
    built: Optional[Built] = None
    checks: List[Dict[str, Any]] = dataclasses.field(default_factory=list)  # of the smoke test


def run(environment: Environment, options: Options, last: str = "report") -> Outcome:
    """Run the stages up to and including ``last``.

    Returns:
        The results; all stages have passed.
    """
    process.adopt_orphans()
    with lock.exclusive(paths.state() / "lock"):
        outcome = Outcome(Run(environment.name, options.engine, options.verbose))
        try:
            _stages(outcome, environment, options, last)
        finally:
            if last in ("smoke", "report"):
                _report(outcome, environment)
                if options.json:
                    print(report_file(outcome.run).read_text(), end="")
    if outcome.built:
        console.note(f"to use it: ./hvd activate {environment.name}")
    return outcome


def _stages(outcome: Outcome, environment: Environment, options: Options, last: str) -> None:
    """Run the stages but the report, and keep their results in ``outcome``."""
    run = outcome.run
    with run.stage("setup"):
        engine = outcome.engine = _choose(run, environment, options)
        run.engine = engine.name
        found = engine.setup(run)
    if last == "setup":
        return
    with run.stage("concretize"):
        solution = outcome.solution = engine.concretize(run, found)
    if last == "concretize":
        return
    with run.stage("build"):
        solution.build(run)
        outcome.built = _record(run, solution)
    if last == "build":
        return
    with run.stage("smoke"):
        _smoke(outcome, found, options.ranks)


def _choose(run: Run, environment: Environment, options: Options) -> Engine:
    """The engine that is asked for; with ``auto``, Spack where there is one."""
    common = {"python": options.python, "jobs": options.jobs, "fresh": options.fresh}
    if options.engine == "pip":
        return PipEngine(environment, **common)
    with run.step("Spack and its packages") as task:
        try:
            spack = engine_spack.locate(options.sources, task)
            return SpackEngine(environment, spack, cache=options.cache, **common)
        except HvdError as error:
            if options.engine == "spack" or environment.site or options.sources != Sources():
                raise
            task.skipped("no Spack found; using pip (set --spack PATH)")
            console.note(error.message)
            return PipEngine(environment, **common)


def _record(run: Run, solution: Solution) -> Built:
    """Keep what was built, what activates it and what is in it, for what comes after."""
    with run.step("activation") as task:
        done, found = solution.record(task)
        task.say(paths.shorten(built.save(done)))
    with run.step("bill of materials") as task:
        # its library takes a while to import, which the other commands need not spend
        from hvd.engines import bom

        commits = components.commits(solution.engine.commits())
        path = bom.write(done.environment, done.engine, done.version, found, commits)
        task.say(paths.shorten(path))
    return done


def _smoke(outcome: Outcome, found: Mapping[str, Any], ranks: int) -> None:
    """Run the smoke test on what was built; ``found`` is what setup returned."""
    run, subject = outcome.run, outcome.built
    out = run.logs / "smoke" / "ranks"
    stamp.clear(out)
    variables = subject.run_environment()
    python = shutil.which("python", path=variables["PATH"])
    plan = smoke_plan(
        Target(pathlib.Path(python or "python"), variables),
        subject.expectation,
        out,
        ranks=ranks,
        timeout=SMOKE_TIMEOUT * (_EMULATED if machine.foreign() else 1),
        mpi4py="mpi4py" in found["distributions"],
        gpu=subject.case if subject.gpu else "",
    )
    failures = perform(run, plan, outcome.checks)
    if failures:
        raise HvdError("\n".join(failures), "the report names the log of each check")


def perform(
    run: Run, plan: Iterable[Tuple[str, Callable[[], Check]]], checks: List[Dict[str, Any]]
) -> List[str]:
    """Perform the checks of a smoke test, whose results go to ``checks``.

    Returns:
        Lines on those that failed.
    """
    failed: List[Check] = []
    for name, function in plan:
        with run.step(name) as task:
            found = function()
            checks.append(found.to_dict())
            if found.failures:
                task.failed(found.failures[0])
                failed.append(found)
    return check.show(failed).plain.splitlines()


def report_file(run: Run) -> pathlib.Path:
    """The report of ``run`` for programs, beside its other forms."""
    return paths.state() / "reports" / paths.key(run.environment, run.engine) / "report.json"


def _report(outcome: Outcome, environment: Environment) -> None:
    run, solution, done = outcome.run, outcome.solution, outcome.built
    report_stage(
        run,
        report_file(run).parent,
        lambda: {
            "environment": run.environment,
            "engine": run.engine,
            "specs": environment.specs,
            "versions": solution.versions() if solution else {},
            "tree": solution.tree(run.logs / "report" / "spec.log") if solution else "",
            "commits": components.commits(solution.engine.commits()) if solution else {},
            "bom": str(components.file(done.environment, done.engine)) if done else "",
            "checks": outcome.checks,
        },
    )
