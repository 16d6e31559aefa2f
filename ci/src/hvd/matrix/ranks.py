"""Run Horovod's own tests, and the examples, on the ranks of a cell after the smoke test."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import shutil
import tempfile
from typing import Any, Container, Dict, Iterator, List, Optional, Sequence, Tuple

from junitparser import JUnitXml

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.fetch import clone
from hvd.fetch.source import patch
from hvd.matrix.cells import CONTROLLERS, TESTS_PATCH, Cell, Matrix
from hvd.model.versions import Pin, pinned
from hvd.smoke.launch import LAUNCHERS, Launcher, Target, environment, find_program, small_machine

_RANKS = 2
#: Seconds for one file of Horovod's tests, which takes five minutes, and for an example.
_TESTS_TIMEOUT, _EXAMPLE_TIMEOUT = 1800, 300
#: From the best to the worst.
_OUTCOMES = ("skipped", "passed", "failed")


@dataclasses.dataclass(frozen=True)
class Ranks:
    """The Horovod of a cell, its controllers, a scratch directory and a log."""

    target: Target
    controllers: str
    scratch: pathlib.Path
    log: pathlib.Path

    @property
    def launchers(self) -> List[Launcher]:
        """One launcher for each controller, MPI's first."""
        named = [each for each in LAUNCHERS if each.name in ("mpirun", "horovodrun --gloo")]
        return [each for each in named if f"+{each.controller}" in CONTROLLERS[self.controllers]]

    def run(
        self,
        launcher: Optional[Launcher],
        arguments: Sequence[object],
        timeout: float,
        python_path: str = "",
        **options: Any,
    ) -> None:
        """Run Python on two ranks, or in one process if ``launcher`` is None."""
        own = self.target.environment
        command, variables = [], {**own, **small_machine(own["PATH"])}
        if launcher:
            command = launcher.command(find_program(self.target, launcher.program), _RANKS)
            variables = environment(launcher, self.target, timeout)
        # last: what the cell has comes before what the tests brought along
        places = filter(None, [own.get("PYTHONPATH"), python_path])
        variables = {**variables, "PYTHONPATH": os.pathsep.join(places)}
        command = [*command, self.target.python, *arguments]
        process.run(command, log=self.log, env=variables, timeout=timeout, **options)

    def example(self, name: str) -> None:
        """Run an example, by its path below examples/."""
        script = paths.ROOT / "examples" / name
        self.run(self.launchers[0], [script], _EXAMPLE_TIMEOUT, cwd=self.scratch)


def built(state: pathlib.Path, engine: str) -> Target:
    """Return the Horovod that ``engine`` built in the directory ``state``."""
    # its bill of materials is beside it
    (file,) = (state / "built").glob(f"*-{engine}.json")
    variables = {**process.clean_environment(), **json.loads(file.read_text())["variables"]}
    python = shutil.which("python", path=variables["PATH"])
    return Target(pathlib.Path(python or "python"), variables)


def run_tests(
    matrix: Matrix, cell: Cell, ranks: Ranks
) -> Iterator[Tuple[str, Dict[str, int], List[str]]]:
    """Run Horovod's own tests: those in parallel/ on two ranks, over each controller that was
    built, and others in one process, which may start ranks.

    Yields:
        The file, with the launcher; then as `count`.
    """
    commit = matrix.upstream["sources"][cell.horovod]
    source = paths.cache() / "horovod" / commit
    address = os.environ.get("HVD_HOROVOD") or pinned().git["horovod"]
    clone.ensure(address, Pin(f"v{cell.horovod}", commit), source, ranks.log)
    extra, tests = ranks.scratch / "upstream", ranks.scratch / "upstream-tests"
    arguments = ["-m", "pip", "install", "--target", extra, *matrix.upstream["requirements"]]
    ranks.run(None, arguments, _TESTS_TIMEOUT)
    shutil.rmtree(tests, ignore_errors=True)
    shutil.copytree(source / "test", tests / "test")
    patch(tests, [TESTS_PATCH], ranks.log)
    for file in matrix.tests(cell):
        path = tests / "test" / file
        # what tests send to the ranks that they start names their module
        python_path = f"{extra}{os.pathsep}{path.parent}"
        for launcher in ranks.launchers if file.startswith("parallel/") else [None]:
            name = f"{path.name}, {launcher.name}" if launcher else file
            with tempfile.TemporaryDirectory() as results:
                # pytest replaces the variables that are set: one of them, with the rank
                report = f"{results}/$OMPI_COMM_WORLD_RANK$PMI_RANK$HOROVOD_RANK.xml"
                arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
                arguments += ["--rootdir", results, f"--junitxml={report}", path]
                # pytest's exit status says no more than its results
                options: Dict[str, Any] = {"cwd": results, "check": False}
                ranks.run(launcher, arguments, _TESTS_TIMEOUT, python_path, **options)
                reports = [each.read_text() for each in pathlib.Path(results).glob("*.xml")]
            wanted = _RANKS if launcher else 1
            if len(reports) != wanted:
                raise HvdError(f"{name}: {len(reports)} of {wanted} ranks finished")
            yield (name, *count(reports, matrix.upstream["failing"]))


def count(reports: List[str], failing: Container[str]) -> Tuple[Dict[str, int], List[str]]:
    """Count the tests in the ranks' JUnit files; a test counts as on its worst rank.

    Returns:
        How many tests passed, failed and were skipped; and those that failed and are not among
        the known ``failing``.
    """
    worst: Dict[str, str] = {}
    for report in reports:
        # in bytes, since lxml, where it is installed, takes no text that declares an encoding
        for case in itertools.chain.from_iterable(JUnitXml.fromstring(report.encode())):
            name = f"{case.classname.rpartition('.')[2]}::{case.name}"
            failed = "failed" if case.is_failure or case.is_error else "passed"
            outcome = "skipped" if case.is_skipped else failed
            worst[name] = max(worst.get(name, outcome), outcome, key=_OUTCOMES.index)
    counts = {outcome: list(worst.values()).count(outcome) for outcome in _OUTCOMES}
    if not worst:
        return counts, ["every test: none was collected, which"]
    return counts, [n for n, came in worst.items() if came == "failed" and n not in failing]
