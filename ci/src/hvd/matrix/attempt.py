"""Build and test one cell."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import pathlib
import shlex
import shutil
import sys
import time
from typing import Any, Iterable, Iterator, Optional

from hvd.core import process, stamp
from hvd.core.errors import CommandFailed, HvdError
from hvd.host import machine, mpi
from hvd.matrix import cause, ranks, result, toolchain
from hvd.matrix.definition import NONE, PIP, SYSTEM, Cell
from hvd.matrix.needs import Needs
from hvd.matrix.plan import Planned
from hvd.matrix.result import Result
from hvd.model.environment import HOROVOD
from hvd.report import RunReport
from hvd.solve import location
from hvd.solve.location import Sources

_ASK_CUDA = "import torch; print('CUDA:', torch.version.cuda or '')"


@dataclasses.dataclass(frozen=True)
class Options:
    """How to run cells: compile jobs, seconds for a cell's ``./hvd run``, and what else to run."""

    jobs: int = 1
    limit: float = 3600.0
    upstream_tests: bool = False
    examples: bool = False


def state(cell: Cell) -> pathlib.Path:
    """Return the directory of the builds of ``cell``.

    Its path is short: Spack 1.1 refuses a long install tree (``SbangPathError``).
    """
    return toolchain.state() / "cells" / stamp.of(cell.id)[:12]


def log(cell: Cell) -> pathlib.Path:
    """Return the file with all output of ``cell``."""
    return toolchain.state() / "logs" / f"{cell.id}.log"


def run(needs: Needs, planned: Planned, options: Options) -> Result:
    """Try a cell, or return without trying what was refused or skipped.

    The result passes, fails or, if pip cannot install what the cell needs, is skipped.
    """
    made = Result(
        planned.cell,
        "passed" if planned.action == "try" else planned.action,
        planned.reason,
        spec=needs.concrete(planned.cell.values),
        host=machine.describe(),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        inputs=needs.inputs(planned.cell),
    )
    if planned.action == "try":
        made.compiler_cache = needs.here.compiler_cache
        _Attempt(needs, options, made).run()
    return made


class _Attempt:
    def __init__(self, needs: Needs, options: Options, made: Result) -> None:
        self.needs, self.options = needs, options
        self.result, self.cell = made, made.cell
        self.engine = "pip" if self.cell.engine == PIP else "spack"
        self.frameworks = needs.matrix.frameworks[self.cell.framework]
        self.log, self.state = log(self.cell), state(self.cell)

    def run(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")
        try:
            self.prepare()
        except HvdError as error:
            self._fail(error, "its dependencies could not be installed: ", outcome="skipped")
        if self.result.result == "passed":
            try:
                self.perform()
            except HvdError as error:
                self._fail(error)
        self.result.log = hashlib.sha256(self.log.read_bytes()).hexdigest()

    def prepare(self) -> None:
        """Install framework, MPI and CMake, each into a virtual environment.

        Raises:
            HvdError: pip cannot install one of them, or it is incomplete.
        """
        begin = time.monotonic()
        cell, matrix, here = self.cell, self.needs.matrix, self.needs.here
        self.python = toolchain.venv(
            f"{cell.framework}-py{cell.python}",
            here.pythons[cell.python],
            self.needs.requirements(cell.values),
            self.log,
            matrix.pip.get(cell.python, ""),
            self.frameworks.system,
        )
        if cell.engine != PIP:
            location.locate(Sources(pair=cell.engine), self.log)
        self.first = [self._installed("cmake")]
        self.mpi = here.mpi if cell.mpi == SYSTEM else None
        if cell.mpi not in (NONE, SYSTEM):
            directory = self._installed("mpi")
            self.mpi = mpi.find(str(directory))
            if not self.mpi:
                raise HvdError(f"{directory} has no MPI to build with")
            self.first.insert(0, directory)
        self.result.distributions = toolchain.distributions(self.python)
        self.result.seconds["frameworks"] = time.monotonic() - begin
        cuda = False
        if "pytorch" in self.frameworks.frameworks:
            command = [self.python / "bin" / "python", "-c", _ASK_CUDA]
            output = process.run(command, log=self.log).output
            cuda = bool(output.rpartition("CUDA:")[2].strip())
        self.spec = self.needs.asked(cell, cuda)
        self.result.spec = self.needs.concrete(cell.values, cuda)
        if cuda and here.no_cuda:
            self._end("skipped", f"pip only had a CUDA build of {cell.framework}")

    def _installed(self, axis: str) -> pathlib.Path:
        """Install the MPI or CMake of the cell and return the directory of its executables."""
        value = getattr(self.cell, axis)
        requirement = self.needs.matrix.choices[axis][value].requirement
        return toolchain.venv(value, sys.executable, [requirement], self.log) / "bin"

    def perform(self) -> None:
        """Build the cell, run its tests, and record the outcome."""
        stamp.clear(self.state)
        command = [sys.executable, "-m", "hvd", "run", "--engine", self.engine]
        if self.cell.engine != PIP:
            command += ["--pair", self.cell.engine]
        command += ["--spec", self.spec, "--python", self.python / "bin" / "python"]
        command += ["--jobs", self.options.jobs]
        self.environment = toolchain.environment(
            self.needs.here, self.cell, self.first, self.mpi, self.state
        )
        failed: Optional[CommandFailed] = None
        try:
            self._command(*command)
        except CommandFailed as error:
            failed = error
        # there is none if the run was killed
        files = [*self.state.glob("reports/*/report.json")]
        report = RunReport.load(files[0]) if files else None
        if report:
            self.result.versions = dict(report.versions)
            self.result.seconds.update({stage.name: stage.seconds for stage in report.stages})
            self.result.checks = {str(c["name"]): bool(c["passed"]) for c in report.checks}
        if failed:
            self._explain(failed, report)
        elif foreign := self._foreign():
            self._end("failed", foreign, stage="build")
        else:
            self._test_more()
        if self.result.result == "passed":
            # of the others, sources and logs are of use
            shutil.rmtree(self.state, ignore_errors=True)

    def _command(self, *command: object) -> None:
        limit = self.options.limit
        process.run(command, log=self.log, env=self.environment, timeout=limit)

    def _foreign(self) -> str:
        """Return what the build used instead of the cell's; empty if nothing."""
        choices = self.needs.matrix.choices
        cmake = choices["cmake"][self.cell.cmake].requirement
        wanted = {"cmake": cmake.partition("==")[2], "Python": f"{self.cell.python}."}
        if self.mpi:
            wanted[self.mpi.package] = self.mpi.version
        wanted["hip"] = choices["operations"][self.cell.operations].rocm
        name, _, major = self.cell.compiler.partition("-")
        wanted[{"clang": "llvm"}.get(name, name)] = f"{major}." if major else ""
        for package, version in wanted.items():
            found = self.result.versions.get(package, "none")
            if version and not found.startswith(version):
                return f"it was built with {package} {found}, not with {version.rstrip('.')}"
        return ""

    def _end(self, outcome: str, reason: str, known: str = "", stage: str = "") -> None:
        """Record why the cell does not pass; the first reason counts."""
        if self.result.result == "passed":
            self.result.result, self.result.reason = outcome, reason
            self.result.cause, self.result.stage = known, stage

    def _fail(
        self, error: HvdError, prefix: str = "", stage: str = "", outcome: str = "failed"
    ) -> None:
        reason, known = cause.find(self.needs.matrix.causes, error.tail, error.message)
        self._end(outcome, prefix + reason, known, stage)

    def _explain(self, failed: CommandFailed, report: Optional[RunReport]) -> None:
        """Record which stage of ``./hvd run`` failed, and why."""
        causes = self.needs.matrix.causes
        stages = report.stages if report else []
        stage = next((each for each in stages if each.status == "failed"), None)
        if failed.status is None:
            reason = f"it took longer than {self.options.limit:.0f} s"
            self._end("failed", reason, stage=stages[-1].name if stages else "")
        elif stage is None:
            text = self.log.read_text(errors="replace")
            self._end("failed", *cause.find(causes, text, failed.message))
        elif stage.name == "smoke" and not all(self.result.checks.values()):
            checks = [check for check in report.checks if not check["passed"]]
            text = self._gather(check.get("log") for check in checks)
            reason = f"{checks[0]['name']}: {(checks[0]['failures'] or ['failed'])[0]}"
            self._end("failed", reason, cause.known(causes, text + reason), "smoke")
        else:
            steps = [each for each in stage.steps if each.status == "failed"]
            text = self._gather(step.log for step in steps[:1])
            otherwise = steps[0].detail if steps else failed.message
            self._end("failed", *cause.find(causes, text, otherwise), stage.name)

    def _gather(self, logs: Iterable[Any]) -> str:
        """Return the text of the failed part's logs, and add it to the cell's log."""
        files = [pathlib.Path(name) for name in logs if name]
        text = "".join(file.read_text(errors="replace") for file in files if file.is_file())
        with open(self.log, "a") as sink:
            sink.write(text)
        return text

    def _test_more(self) -> None:
        """Run Spack's test of the package, and what the options ask for: its tests, examples."""
        made, matrix = self.result, self.needs.matrix
        if self.cell.engine != PIP:
            # what a user would type after sourcing the script that ``./hvd setup`` makes
            (directory,) = (self.state / "environments").iterdir()
            script = shlex.quote(str(self.state / "setup-env.sh"))
            spack_test = f"spack -e {shlex.quote(str(directory))} test run {HOROVOD}"
            with self._stage("spack test"):
                self._command("bash", "-c", f". {script} && {spack_test}")
            made.checks["spack test run"] = made.result == "passed"
        # what follows may be long, and may be killed
        result.save(made)
        if not (self.options.upstream_tests or self.options.examples):
            return
        variants = matrix.choices["controllers"][self.cell.controllers].variants
        target = ranks.built(self.state, self.engine)
        on_ranks = ranks.Ranks(target, variants, self.state, self.log)
        release, frameworks = self.cell.horovod, self.frameworks.frameworks
        files = ranks.test_files(matrix.upstream, release, frameworks)
        if self.options.upstream_tests and files:
            with self._stage("upstream tests"):
                for name, counts, failed in ranks.run_tests(
                    matrix.upstream, release, files, on_ranks
                ):
                    made.upstream[name] = counts
                    if failed:
                        self._end("failed", f"{name}: {failed[0]} failed", stage="upstream tests")
        if self.options.examples:
            for name in ranks.examples(frameworks, made.distributions):
                with self._stage("examples", f"examples/{name}: "):
                    made.examples[name] = ranks.rates(name, on_ranks)

    @contextlib.contextmanager
    def _stage(self, name: str, prefix: str = "") -> Iterator[None]:
        """Time a stage after the build; an error in it fails the cell."""
        begin = time.monotonic()
        try:
            yield
        except HvdError as error:
            self._fail(error, prefix, name)
        seconds = self.result.seconds
        seconds[name] = seconds.get(name, 0.0) + time.monotonic() - begin
