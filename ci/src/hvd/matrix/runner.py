"""Build and test one cell, and say what came of it."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import shlex
import shutil
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from hvd.core import paths, process, stamp
from hvd.core.errors import CommandFailed, HvdError
from hvd.host import machine, mpi
from hvd.matrix import cause, examples, toolchain, upstream, venvs, wanted
from hvd.matrix.definition import NONE, PIP, SYSTEM, Cell, Matrix
from hvd.matrix.here import Here, ccache_version
from hvd.matrix.plan import Planned
from hvd.matrix.result import Result
from hvd.model.environment import HOROVOD
from hvd.report import RunReport
from hvd.solve import spack
from hvd.solve.spack import Sources

#: Everything of the matrix but its results.
STATE = paths.STATE / "matrix"
#: Parts of a cell, as its result names them.
_SPACK_TEST, _UPSTREAM = "spack test", "upstream tests"
_SPACK_TEST_RUN = "spack test run"
_ASK_CUDA = "import torch; print('CUDA:', torch.version.cuda or '')"


@dataclasses.dataclass(frozen=True)
class Options:
    """How cells are run.

    Args:
        jobs: parallel compile jobs.
        limit: seconds that a cell's ``./hvd run`` may take.
        upstream_tests: run Horovod's own tests as well.
        examples: run the examples as well.
    """

    jobs: int = 1
    limit: float = 3600.0
    upstream_tests: bool = False
    examples: bool = False


def state(cell: Cell) -> pathlib.Path:
    """Where the builds of ``cell`` are.

    A short path: Spack 1.1 refuses an install tree whose path is long (``SbangPathError``).
    """
    return STATE / "cells" / stamp.of(cell.id)[:12]


def log(cell: Cell) -> pathlib.Path:
    """Where everything is that trying ``cell`` has printed."""
    return STATE / "logs" / f"{cell.id}.log"


def run(
    matrix: Matrix,
    cell: Cell,
    here: Here,
    options: Options,
    keep: Callable[[Result], object] = lambda result: None,
) -> Result:
    """Try ``cell``: it passes, fails or, where pip cannot install what it needs, is skipped.

    Args:
        matrix: whose cell it is.
        cell: the combination.
        here: the machine.
        options: how it is run.
        keep: is given the result before what comes after the build's own tests, which may be long.
    """
    attempt = _Attempt(matrix, cell, here, options)
    attempt.log.parent.mkdir(parents=True, exist_ok=True)
    attempt.log.write_bytes(b"")
    try:
        attempt.prepare()
    except HvdError as error:
        text = getattr(error, "tail", "")
        reason, known = cause.find(matrix.causes, text, error.message)
        attempt.end("skipped", f"its dependencies could not be installed: {reason}", known)
    else:
        if attempt.result.result != "skipped":
            try:
                attempt.perform(keep)
            except HvdError as error:
                attempt.end("failed", error.message)
    attempt.result.log = hashlib.sha256(attempt.log.read_bytes()).hexdigest()
    return attempt.result


def untried(matrix: Matrix, planned: Planned, here: Here) -> Result:
    """What came of a cell that the recipe refuses, or that this machine cannot try."""
    return Result(
        planned.cell,
        planned.action,
        planned.reason,
        spec=wanted.concrete(matrix, dataclasses.asdict(planned.cell), here),
        host=machine.describe(),
        date=_today(),
        inputs=wanted.inputs(matrix, planned.cell, here),
    )


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


class _Attempt:
    def __init__(self, matrix: Matrix, cell: Cell, here: Here, options: Options) -> None:
        self.matrix = matrix
        self.cell = cell
        self.here = here
        self.options = options
        self.log = log(cell)
        self.state = state(cell)
        self.values = dataclasses.asdict(cell)
        self.engine = "pip" if cell.engine == PIP else "spack"
        self.result = Result(
            cell,
            "passed",
            compiler_cache=ccache_version(here.ccache),
            host=machine.describe(),
            date=_today(),
            inputs=wanted.inputs(matrix, cell, here),
        )

    def end(self, result: str, reason: str, known: str = "", stage: str = "") -> None:
        self.result.result, self.result.reason = result, reason
        self.result.cause, self.result.stage = known, stage

    def prepare(self) -> None:
        """Have the framework, the MPI and CMake, each in a virtual environment.

        Raises:
            HvdError: pip cannot install one of them, or it is not whole.
        """
        begin = time.monotonic()
        cell, matrix = self.cell, self.matrix
        self.python = self._venv(
            f"{cell.framework}-py{cell.python}",
            wanted.requirements(matrix, self.values),
            self.here.pythons[cell.python],
            matrix.pip.get(cell.python, ""),
            system=matrix.frameworks[cell.framework].system,
        )
        if cell.engine != PIP:
            spack.locate(Sources(pair=cell.engine), self.log)
        self.first = [self._venv(cell.cmake, [matrix.cmakes[cell.cmake]]) / "bin"]
        self.mpi = self.here.mpi if cell.mpi == SYSTEM else None
        if cell.mpi not in (NONE, SYSTEM):
            directory = self._venv(cell.mpi, [matrix.mpis[cell.mpi].requirement]) / "bin"
            self.mpi = mpi.find(str(directory))
            if not self.mpi:
                raise HvdError(f"{directory} has no MPI to build with")
            self.first.insert(0, directory)
        self.result.distributions = venvs.distributions(self.python)
        self.result.seconds["frameworks"] = time.monotonic() - begin
        cuda = self._cuda()
        self.spec = wanted.asked(matrix, cell, self.here, cuda)
        self.result.spec = wanted.concrete(matrix, self.values, self.here, cuda)
        if cuda and not self.here.cuda:
            self.end("skipped", f"pip had a build for CUDA of {cell.framework} alone")

    def perform(self, keep: Callable[[Result], object]) -> None:
        """Run the stages, and see what came of them."""
        stamp.clear(self.state)
        command: List[object] = [sys.executable, "-m", "hvd", "run", "--engine", self.engine]
        if self.cell.engine != PIP:
            command += ["--pair", self.cell.engine]
        command += ["--spec", self.spec, "--python", self.python / "bin" / "python"]
        command += ["--jobs", self.options.jobs]
        environment = toolchain.environment(
            self.here,
            self.cell.compiler,
            self.first,
            self.mpi,
            self.state,
            by_spack=self.cell.engine != PIP,
        )
        ending: Optional[CommandFailed] = None
        try:
            process.run(command, log=self.log, env=environment, timeout=self.options.limit)
        except CommandFailed as error:
            ending = error
        report = self._report()
        if report:
            self._take(report)
        if ending:
            self._fail(ending, report)
        elif foreign := self._foreign():
            self.end("failed", foreign, stage="build")
        else:
            if self.cell.engine != PIP:
                self._spack_test(environment)
            keep(self.result)
            if self.options.upstream_tests:
                self._upstream()
            if self.options.examples:
                self._examples()
        if self.result.result == "passed":
            # of the others, sources and logs are of use
            shutil.rmtree(self.state, ignore_errors=True)

    def _venv(
        self,
        name: str,
        requirements: List[str],
        python: str = sys.executable,
        pip: str = "",
        system: bool = False,
    ) -> pathlib.Path:
        return venvs.make(name, python, requirements, pip, self.log, system)

    def _cuda(self) -> bool:
        """Whether the framework that pip has found is one for CUDA."""
        chosen = self.matrix.frameworks[self.cell.framework]
        if "pytorch" not in chosen.frameworks:
            return False
        command = [self.python / "bin" / "python", "-c", _ASK_CUDA]
        said = process.run(command, log=self.log).output
        return bool(said.rpartition("CUDA:")[2].strip())

    def _report(self) -> Optional[RunReport]:
        """What the run says of itself; None where it was killed before it could."""
        for path in (self.state / "reports").glob("*/report.json"):
            return RunReport.load(path)
        return None

    def _take(self, report: RunReport) -> None:
        self.result.versions = dict(report.versions)
        self.result.seconds.update({stage.name: stage.seconds for stage in report.stages})
        self.result.checks = {str(c["name"]): bool(c["passed"]) for c in report.checks}

    def _foreign(self) -> str:
        """What it was built with that is not the cell's; empty where there is no such thing."""
        cmake = self.matrix.cmakes[self.cell.cmake].partition("==")[2]
        wanted = {"cmake": cmake, "Python": f"{self.cell.python}."}
        if self.mpi:
            wanted[self.mpi.package] = self.mpi.version
        name, _, major = self.cell.compiler.partition("-")
        if major:
            wanted[{"clang": "llvm"}.get(name, name)] = f"{major}."
        for program, version in wanted.items():
            found = self.result.versions.get(program, "none")
            if not found.startswith(version):
                return f"it was built with {program} {found}, not with {version.rstrip('.')}"
        return ""

    def _fail(self, ending: CommandFailed, report: Optional[RunReport]) -> None:
        if ending.status is None:
            stages = [stage.name for stage in report.stages] if report else []
            reason = f"it took longer than {self.options.limit:.0f} s"
            self.end("failed", reason, stage=stages[-1] if stages else "")
            return
        stage = next((s for s in report.stages if s.status == "failed"), None) if report else None
        if stage is None:
            text = self.log.read_text(errors="replace")
            reason, known = cause.find(self.matrix.causes, text, ending.message)
            self.end("failed", reason, known)
            return
        checks = [check for check in report.checks if not check["passed"]]
        if stage.name == "smoke" and checks:
            text = self._gather([check.get("log") for check in checks])
            reason = f"{checks[0]['name']}: {(checks[0]['failures'] or ['failed'])[0]}"
            self.end("failed", reason, cause.known(self.matrix.causes, text + reason), "smoke")
            return
        step = next((each for each in stage.steps if each.status == "failed"), None)
        text = self._gather([step.log if step else None])
        otherwise = step.detail if step else ending.message
        reason, known = cause.find(self.matrix.causes, text, otherwise)
        self.end("failed", reason, known, stage.name)

    def _gather(self, logs: List[Any]) -> str:
        """What the logs of the failed part say, which is added to the cell's log."""
        text = ""
        for name in filter(None, logs):
            path = pathlib.Path(name)
            text += path.read_text(errors="replace") if path.is_file() else ""
        with open(self.log, "a") as sink:
            sink.write(text)
        return text

    def _spack_test(self, environment: Dict[str, str]) -> None:
        """What a user would type after sourcing the script that ``./hvd setup`` makes."""
        begin = time.monotonic()
        (directory,) = (self.state / "environments").iterdir()
        script = self.state / "setup-env.sh"
        shell = f". {shlex.quote(str(script))} && spack -e {shlex.quote(str(directory))}"
        command = ["bash", "-c", f"{shell} test run {HOROVOD}"]
        try:
            process.run(command, log=self.log, env=environment, timeout=self.options.limit)
        except HvdError as error:
            text = getattr(error, "tail", "")
            reason, known = cause.find(self.matrix.causes, text, error.message)
            self.end("failed", reason, known, _SPACK_TEST)
        self.result.checks[_SPACK_TEST_RUN] = self.result.result == "passed"
        self.result.seconds[_SPACK_TEST] = time.monotonic() - begin

    def _upstream(self) -> None:
        """Horovod's own tests, on two ranks over each controller."""
        frameworks = self.matrix.frameworks[self.cell.framework].frameworks
        suite = upstream.suite(self.matrix.upstream, self.cell.horovod, frameworks)
        if not suite:
            return
        begin = time.monotonic()
        controllers = self.matrix.controllers[self.cell.controllers].variants
        target = examples.built(self.state, self.engine)
        try:
            for name, counts in upstream.run(suite, target, controllers, self.state, self.log):
                self.result.upstream[name] = counts.numbers
                if counts.unexpected:
                    first = f"{name}: {counts.unexpected[0]} failed"
                    self.end("failed", first, stage=_UPSTREAM)
        except HvdError as error:
            self.end("failed", error.message, stage=_UPSTREAM)
        self.result.seconds[_UPSTREAM] = time.monotonic() - begin

    def _examples(self) -> None:
        begin = time.monotonic()
        frameworks = self.matrix.frameworks[self.cell.framework].frameworks
        controllers = self.matrix.controllers[self.cell.controllers].variants
        target = examples.built(self.state, self.engine)
        rates: Dict[str, Dict[str, float]] = {}
        try:
            for name in examples.chosen(frameworks, self.result.distributions):
                rates[name] = examples.rates(name, target, controllers, self.state, self.log)
        except HvdError as error:
            text = getattr(error, "tail", "")
            reason, known = cause.find(self.matrix.causes, text, error.message)
            self.end("failed", f"examples/{name}: {reason}", known, "examples")
        self.result.examples = rates
        self.result.seconds["examples"] = time.monotonic() - begin
