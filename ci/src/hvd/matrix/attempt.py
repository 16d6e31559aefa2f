"""Build and test one cell."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shlex
import shutil
import sys
import time
from typing import Callable, Dict, List, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hvd.core import paths, process, stamp
from hvd.core.errors import CommandFailed, HvdError
from hvd.host import machine, mpi
from hvd.matrix import here, ranks
from hvd.matrix.cells import PIP, SYSTEM, Cell, Matrix
from hvd.matrix.results import Result
from hvd.model.environment import HOROVOD
from hvd.report import RunReport
from hvd.report.text import plain

#: Variables of the caller's shell that would change a build.
_FOREIGN = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "OPAL_PREFIX", "I_MPI_ROOT")
#: Seconds for pip; a framework may be gigabytes.
_TIMEOUT = 3600
#: Errors of compilers, CMake, linkers, pip, Python and Spack, whose first reason has a number.
_ERROR = re.compile(
    r": (fatal )?error: |^CMake Error|^(collect2|ld|/\S*/ld): .*(error|undefined)|"
    r"undefined (symbol|reference)|^ERROR: |^==> Error:|^1\. |^(\w+\.)*\w*(Error|Exception)(: |$)|"
    r"[Ss]egmentation fault|Out of memory|No space left"
)
#: Lines that only say that something failed.
_AFTERMATH = re.compile(
    r"CalledProcessError|exit status|subprocess-exited|packages failed to|following reasons"
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Compile jobs, seconds for a cell's ``./hvd run``, whether frameworks may be CUDA builds, and
    what else to run."""

    jobs: int = 1
    limit: float = 3600.0
    cuda: bool = False
    upstream_tests: bool = False
    examples: bool = False


class Skipped(HvdError):
    """The cell cannot be tried here."""


def run(matrix: Matrix, cell: Cell, options: Options, keep: Callable[[Result], None]) -> Result:
    """Build and test a cell, and ``keep`` its result as soon as there is one."""
    begin = time.monotonic()
    attempt = Attempt(matrix, cell, options)
    attempt.log.write_bytes(b"")
    try:
        attempt.install()
    except Skipped:
        raise
    except HvdError as error:
        raise Skipped(first_error(error.tail) or error.message) from error
    for step in (attempt.build, attempt.test):
        try:
            step()
        except HvdError as error:
            attempt.fail(first_error(error.tail) or error.message)
        attempt.result.seconds = round(time.monotonic() - begin)
        keep(attempt.result)
    if attempt.result.result == "passed":
        # of the others, sources and logs are of use
        shutil.rmtree(attempt.state, ignore_errors=True)
    return attempt.result


class Attempt:
    """One attempt at a cell; ``result`` is what is known so far."""

    def __init__(self, matrix: Matrix, cell: Cell, options: Options) -> None:
        self.matrix, self.cell, self.options = matrix, cell, options
        self.engine = "pip" if cell.engine == PIP else "spack"
        self.framework = matrix.frameworks[cell.framework]
        self.log = log(cell)
        # short: Spack 1.1 refuses a long install tree (SbangPathError)
        self.state = state() / "cells" / stamp.of(cell.id)[:12]
        self.stage, self.cuda = "", False
        host = ", ".join(str(machine.describe()[name]) for name in ("os", "cpu"))
        self.result = Result(
            cell.id, "passed", time.strftime("%Y-%m-%d", time.gmtime()), host=host
        )

    def install(self) -> None:
        """Install framework, MPI and CMake, each into a virtual environment."""
        cell, matrix, log = self.cell, self.matrix, self.log
        wanted, torch = matrix.requirements(cell), "pytorch" in self.framework.frameworks
        options: List[str] = ["--system-site-packages"] if self.framework.system else []
        options += ["--without-pip"] if self.framework.system and not wanted else []
        pip, python = matrix.pip.get(cell.python, "pip"), here.interpreter(cell.python)
        cuda = self.options.cuda or not torch
        directory = venv(
            f"{cell.framework}-py{cell.python}", python, wanted, log, pip, options, cuda
        )
        tools = [matrix.mpi[cell.mpi]] if cell.mpi in matrix.mpi else []
        tools.append(matrix.cmake[cell.cmake])
        self.first = [
            venv(each.spec, sys.executable, each.requirements, log) / "bin" for each in tools
        ]
        self.mpi = mpi.find() if cell.mpi == SYSTEM else None
        if cell.mpi in matrix.mpi:
            self.mpi = mpi.find(str(self.first[0]))
            if not self.mpi:
                raise Skipped(f"{self.first[0]} has no MPI to build with")
        self.python = directory / "bin" / "python"
        versions = json.loads((directory / "versions.json").read_text())
        names = [canonicalize_name(Requirement(text).name) for text in wanted]
        # Keras may come with TensorFlow
        names += self.framework.frameworks
        self.result.versions = {name: versions[name] for name in names if name in versions}
        self.cuda = torch and any(name.startswith("nvidia-") for name in versions)
        if self.cuda and not shutil.which("nvcc"):
            raise Skipped("its PyTorch has CUDA, and nvcc is not on PATH")
        self.result.spec = matrix.spec(cell, self.cuda)
        self.result.inputs = matrix.inputs(cell, self.cuda)

    def build(self) -> None:
        """Build the cell and run its smoke test, and Spack's test of the package."""
        stamp.clear(self.state)
        command = [sys.executable, "-m", "hvd", "run", "--engine", self.engine]
        spec = self.result.spec
        if self.engine == "spack":
            command += ["--pair", self.cell.engine]
            spec += f" {self.matrix.tools(self.cell)}"
        command += ["--spec", spec, "--python", str(self.python), "--jobs", str(self.options.jobs)]
        try:
            self._run(*command)
        except CommandFailed as error:
            self._explain(error)
            return
        self._read_report()
        self.stage = "build"
        self._check_versions()
        if self.engine == "spack":
            self.stage = "spack test"
            self.result.checks["spack test run"] = False
            # what a user would type after sourcing the script that ``./hvd setup`` makes
            (environment,) = (self.state / "environments").iterdir()
            script = shlex.quote(str(self.state / "setup-env.sh"))
            test = f"spack -e {shlex.quote(str(environment))} test run {HOROVOD}"
            self._run("bash", "-c", f". {script} && {test}")
            self.result.checks["spack test run"] = True

    def test(self) -> None:
        """Run Horovod's own tests and the examples, as the options ask."""
        files = self.matrix.tests(self.cell) if self.options.upstream_tests else []
        examples = self.framework.examples if self.options.examples else ()
        if self.result.result == "failed" or not (files or examples):
            return
        target = ranks.built(self.state, self.engine)
        on_ranks = ranks.Ranks(target, self.cell.controllers, self.state, self.log)
        if files:
            self.stage = "upstream tests"
            self.result.inputs = self.matrix.inputs(self.cell, self.cuda, tested=True)
            for name, counts, failed in ranks.run_tests(self.matrix, self.cell, on_ranks):
                self.result.upstream[name] = counts
                if failed:
                    self.fail(f"{name}: {failed[0]} failed")
        for name in examples:
            self.stage = "examples"
            self.result.checks[f"examples/{name}"] = False
            on_ranks.example(name)
            self.result.checks[f"examples/{name}"] = True

    def fail(self, reason: str) -> None:
        """Record why the cell fails; the first reason counts."""
        if self.result.result == "passed":
            self.result.result, self.result.stage = "failed", self.stage
            self.result.reason = reason.strip()[:300]

    def _run(self, *command: object) -> None:
        limit = self.options.limit
        process.run(command, log=self.log, env=self._environment(), timeout=limit)

    def _environment(self) -> Dict[str, str]:
        """Return the whole environment of the cell's ``./hvd run``."""
        compilers = []
        ccache = shutil.which("ccache")
        # Spack finds compilers by their own names, and calls ccache itself
        if self.engine == "pip" and ccache:
            # ccache looks for a compiler of the same name in what follows on PATH
            compilers.append(_links("ccache", ccache, ccache))
        if self.engine == "pip" and self.cell.compiler != SYSTEM:
            cxx = shutil.which(here.cxx(self.cell.compiler)) or ""
            cc = str(pathlib.Path(cxx).with_name(self.cell.compiler))
            compilers.append(_links(self.cell.compiler, cxx, cc))
        variables = process.clean_environment(mpi.search_path([*self.first, *compilers]))
        for name in _FOREIGN:
            variables.pop(name, None)
        variables.update(PYTHONPATH=str(paths.SOURCE), HVD_STATE=str(self.state))
        # mpi4py's wheel would look beside its own interpreter; libmpi.so without a number may be a
        # text for the linker
        libraries = self.mpi.prefix.glob("lib/libmpi.so.*") if self.mpi else ()
        for library in sorted(libraries, key=lambda path: len(path.name), reverse=True):
            variables["MPI4PY_LIBMPI"] = str(library)
        if ccache:
            variables.update(
                # hvd.solve.spack tells Spack of ccache if this is set
                CCACHE_DIR=str(paths.cache() / "ccache"),
                # each cell compiles the same sources in another directory
                CCACHE_BASEDIR=str(self.state),
                CCACHE_NOHASHDIR="1",
                CCACHE_SLOPPINESS="time_macros,include_file_mtime,include_file_ctime",
            )
        return variables

    def _read_report(self) -> RunReport:
        """Take versions and checks from the report of the run; a killed run leaves none."""
        files = list(self.state.glob("reports/*/report.json"))
        report = RunReport.load(files[0]) if files else RunReport("", self.engine, "")
        self.result.versions.update(report.versions)
        self.result.checks = {str(each["name"]): bool(each["passed"]) for each in report.checks}
        return report

    def _check_versions(self) -> None:
        """Refuse a build that used something else in place of the cell's."""
        package, _, version = self.matrix.cmake[self.cell.cmake].spec.partition("@")
        wanted = {package: version, "Python": f"{self.cell.python}."}
        if self.mpi:
            wanted[self.mpi.package] = self.mpi.version
        wanted["hip"] = self.cell.operations.partition("rocm-")[2]
        name, _, major = self.cell.compiler.partition("-")
        wanted[name.replace("clang", "llvm")] = major and f"{major}."
        for package, version in wanted.items():
            found = self.result.versions.get(package, "none")
            if version and not found.startswith(version):
                version = version.rstrip(".")
                raise HvdError(f"it was built with {package} {found}, not with {version}")

    def _explain(self, error: CommandFailed) -> None:
        """Record which stage of ``./hvd run`` failed, and why."""
        report, log, detail = self._read_report(), self.log, error.message
        for stage in report.stages:
            self.stage = stage.name
            for step in stage.steps:
                if step.status == "failed":
                    log, detail = pathlib.Path(step.log or log), step.detail
        for check in report.checks:
            if not check["passed"]:
                self.fail(f"{check['name']}: {(check['failures'] or ['failed'])[0]}")
        if error.status is None:
            self.fail(f"it took longer than {self.options.limit:.0f} s")
        self.fail(first_error(log.read_text(errors="replace")) or detail)


def state() -> pathlib.Path:
    """Return the directory of everything of the matrix but its results."""
    return paths.state() / "matrix"


def log(cell: Cell) -> pathlib.Path:
    """Return the file with all output of ``cell``."""
    path = state() / "logs" / f"{cell.id}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def first_error(text: str) -> str:
    """Return the first error in a log; empty if there is none."""
    lines = map(str.strip, plain(text).splitlines())
    return next((x for x in lines if _ERROR.search(x) and not _AFTERMATH.search(x)), "")


def venv(
    name: str,
    python: str,
    requirements: Sequence[str],
    log: pathlib.Path,
    pip: str = "pip",
    options: Sequence[str] = (),
    cuda: bool = True,
) -> pathlib.Path:
    """Return a virtual environment, which cells with the same ``requirements`` share.

    ``name`` begins the name of its directory; ``pip`` is the requirement of the pip to install
    with; without ``cuda``, NVIDIA's distributions, which are gigabytes, are refused.
    """
    digest = stamp.of(list(requirements), python, pip, list(options))
    directory = state() / "venvs" / f"{name}-{digest[:8]}"
    if stamp.matches(directory / "stamp", digest):
        return directory
    stamp.clear(directory)
    process.run([python, "-m", "venv", *options, directory], log=log, timeout=_TIMEOUT)

    def run_pip(*arguments: str) -> str:
        command = [directory / "bin" / "python", "-m", "pip", *arguments]
        environment = process.clean_environment()
        return process.run(command, log=log, env=environment, timeout=_TIMEOUT).output

    if requirements:
        run_pip("install", "--upgrade", "--progress-bar=off", pip)
        if not cuda and re.search(r" nvidia-\S", run_pip("install", "--dry-run", *requirements)):
            raise Skipped("pip would download CUDA, which is gigabytes; see --cuda")
        run_pip("install", "--upgrade", "--progress-bar=off", *requirements)
    # there may be warnings before and after the list
    lines = run_pip("list", "--format=json").splitlines()
    listed = json.loads(next(line for line in lines if line.startswith("[")))
    versions = {canonicalize_name(each["name"]): each["version"] for each in listed}
    (directory / "versions.json").write_text(json.dumps(versions))
    stamp.put(directory / "stamp", digest)
    return directory


def _links(name: str, cxx: str, cc: str) -> pathlib.Path:
    """Return a directory with links by which builds find ccache or a compiler."""
    directory = state() / "compilers" / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for program, target in {"c++": cxx, "g++": cxx, "cc": cc, "gcc": cc}.items():
        (directory / program).symlink_to(target)
    return directory
