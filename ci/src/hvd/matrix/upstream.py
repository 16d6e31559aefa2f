"""Horovod's own tests, from the release's source, with what a cell has built."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
import xml.etree.ElementTree
from typing import Container, Dict, Iterator, List, Mapping, Tuple

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.fetch import clone
from hvd.matrix.definition import Upstream
from hvd.model import pins
from hvd.model.pins import Pin
from hvd.smoke.launch import LAUNCHERS, Launcher, Target, environment, find_program

PROGRAM = pathlib.Path(__file__).with_name("program_upstream.py")
#: Where Horovod's source is fetched from, in place of the address of ci/versions.yaml.
ADDRESS = "HVD_HOROVOD"
#: The launchers, by the controller that they use.
_LAUNCHERS = {"mpi": "mpirun", "gloo": "horovodrun --gloo"}
_RANKS = 2
#: Seconds for one file of tests, which takes about five minutes.
_TIMEOUT = 1800


@dataclasses.dataclass(frozen=True)
class Suite:
    """The tests of one release for some frameworks.

    Args:
        source: the release.
        files: their names.
        requirements: what they import beside the framework.
        failing: why a test fails that is known to.
    """

    source: Pin
    files: Tuple[str, ...]
    requirements: Tuple[str, ...]
    failing: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.files)


@dataclasses.dataclass
class Counts:
    """What came of a file's tests on all ranks: a test counts as its worst rank.

    Args:
        numbers: how many passed, failed, and were skipped.
        unexpected: those that failed and are not known to.
    """

    numbers: Dict[str, int]
    unexpected: List[str]


def suite(asked: Upstream, release: str, frameworks: Container[str]) -> Suite:
    """The tests of ``release`` for ``frameworks``; none where the matrix has none for it."""
    source = asked.sources.get(release, Pin("", ""))
    files = [
        file
        for framework, files in asked.files.items()
        for file in files
        if source.commit and framework in frameworks
    ]
    return Suite(source, tuple(files), asked.requirements, asked.failing)


def run(
    suite: Suite, target: Target, controllers: str, state: pathlib.Path, log: pathlib.Path
) -> Iterator[Tuple[str, Counts]]:
    """Run each file of ``suite`` on two ranks, over each controller that was built.

    Args:
        suite: the tests.
        target: the Horovod to test.
        controllers: the variants of what was built, such as ``+mpi~gloo``.
        state: where the tests' own requirements and the results go.
        log: where what is printed is written.

    Yields:
        File and launcher, and what came of it.

    Raises:
        HvdError: the source or a requirement cannot be had, or a run left no result.
    """
    source = paths.cache() / "horovod" / suite.source.commit
    address = os.environ.get(ADDRESS) or pins.versions().git["horovod"]
    clone.ensure(address, suite.source, source, log)
    extra = state / "upstream"
    command = [target.python, "-m", "pip", "install", "--target", extra, *suite.requirements]
    process.run(command, log=log, env=dict(target.environment), timeout=_TIMEOUT)
    for file in suite.files:
        for controller, name in _LAUNCHERS.items():
            if f"+{controller}" in controllers:
                (launcher,) = [each for each in LAUNCHERS if each.name == name]
                test = source / "test" / "parallel" / file
                yield f"{file}, {name}", _one(suite, test, launcher, target, extra, log)


def _one(
    suite: Suite,
    test: pathlib.Path,
    launcher: Launcher,
    target: Target,
    extra: pathlib.Path,
    log: pathlib.Path,
) -> Counts:
    variables = environment(launcher, target, _TIMEOUT)
    # last: what the cell has comes before what the tests brought along
    python_path = [variables.get("PYTHONPATH", ""), str(extra)]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, python_path))
    with tempfile.TemporaryDirectory() as scratch:
        results = pathlib.Path(scratch)
        command = launcher.command(find_program(target, launcher.program), _RANKS)
        command += [str(target.python), str(PROGRAM), str(test), str(results)]
        # pytest's exit status says no more than its results
        process.run(command, log=log, cwd=results, env=variables, timeout=_TIMEOUT, check=False)
        files = sorted(results.glob("*.xml"))
        if len(files) != _RANKS:
            raise HvdError(
                f"{test.name}, {launcher.name}: {len(files)} of {_RANKS} ranks came to their end",
                "the log says what they printed",
                log,
            )
        return count([file.read_text() for file in files], suite.failing)


def count(reports: List[str], failing: Container[str]) -> Counts:
    """What came of the tests.

    Args:
        reports: JUnit's XML of each rank.
        failing: the tests that are known to fail.
    """
    order = ("skipped", "passed", "failed")
    worst: Dict[str, str] = {}
    for report in reports:
        for case in xml.etree.ElementTree.fromstring(report).iter("testcase"):
            name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
            tags = {child.tag for child in case}
            came = "failed" if tags & {"failure", "error"} else "passed"
            came = "skipped" if "skipped" in tags else came
            worst[name] = max(worst.get(name, came), came, key=order.index)
    numbers = {word: sum(came == word for came in worst.values()) for word in order}
    unexpected = [n for n, came in worst.items() if came == "failed" and n not in failing]
    if not worst:
        unexpected = ["every test: none was collected, which"]
    return Counts(numbers, unexpected)
