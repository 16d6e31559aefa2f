"""Run Horovod's own tests, and the examples, on the ranks of a cell after the smoke test."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import tempfile
from typing import Any, Container, Dict, Iterator, List, Mapping, Sequence, Tuple

from junitparser import JUnitXml

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.fetch import clone
from hvd.fetch.source import patch
from hvd.matrix.definition import Upstream
from hvd.model import specs
from hvd.model.versions import Pin, pinned
from hvd.smoke.launch import LAUNCHERS, Launcher, Target, environment, find_program, small_machine

PROGRAM = pathlib.Path(__file__).with_name("program_tests.py")
#: What Horovod's tests say of the behaviour that the recipe's patches change.
PATCH = paths.ROOT / "ci" / "upstream-tests.patch"
#: The directory of Horovod's tests that are run on several ranks.
_PARALLEL = "parallel"
#: One launcher for each controller.
_LAUNCHERS = ("mpirun", "horovodrun --gloo")
#: The variable that replaces the address of Horovod's source in ci/versions.yaml.
_ADDRESS = "HVD_HOROVOD"
#: The ranks of Horovod's tests, and seconds for one file of them, which takes five minutes.
_RANKS, _TESTS_TIMEOUT = 2, 1800
#: From the best to the worst.
_OUTCOMES = ("skipped", "passed", "failed")
#: Framework, distribution and its versions by example; see examples/README.md.
_EXAMPLES = {
    "pytorch": ("pytorch", "torch", "1.8:"),
    "tensorflow2": ("tensorflow", "tensorflow-cpu", "2.12:"),
    "keras": ("keras", "keras", "2.15:"),
}
_RATE = re.compile(r"epoch \d+: loss [\d.]+, (\d+) samples/s$", re.MULTILINE)
#: Epochs of a run, each of some tenths of a second.  The fastest counts: in the first the
#: framework warms up, and others may be slowed by what else the machine does.
_EPOCHS = 10
#: Steps that take long compared with Horovod's cycle of 1 ms.
SIZES = ("--samples", "16384", "--batch-size", "512", "--hidden", "4096")
#: One thread per rank (OMP_NUM_THREADS is set for any run), and no processes beside the ranks.
_THREADS = {"TF_NUM_INTRAOP_THREADS": "1"}
_OPTIONS = {"pytorch": ("--workers", "0")}
#: Seconds for one run of an example.
_EXAMPLE_TIMEOUT = 300


@dataclasses.dataclass(frozen=True)
class Ranks:
    """The Horovod of a cell, its controllers as variants, a scratch directory and a log."""

    target: Target
    variants: str
    scratch: pathlib.Path
    log: pathlib.Path

    @property
    def launchers(self) -> List[Launcher]:
        """One launcher for each controller that was built, MPI's first."""
        named = [each for each in LAUNCHERS if each.name in _LAUNCHERS]
        return [each for each in named if f"+{each.controller}" in self.variants]

    def run(
        self,
        launcher: Launcher,
        count: int,
        arguments: Sequence[object],
        variables: Mapping[str, str],
        timeout: float,
        **options: Any,
    ) -> str:
        """Run Python on ``count`` ranks for at most ``timeout`` seconds; return their output.

        Raises:
            CommandFailed: as `hvd.core.process.run`, which takes the ``options``.
        """
        command = launcher.command(find_program(self.target, launcher.program), count)
        return process.run(
            [*command, self.target.python, *arguments],
            log=self.log,
            env={**environment(launcher, self.target, timeout), **variables},
            timeout=timeout,
            **options,
        ).output


def built(state: pathlib.Path, engine: str) -> Target:
    """Return the Horovod that ``engine`` built in the directory ``state``."""
    # its bill of materials is beside it
    (file,) = (state / "built").glob(f"*-{engine}.json")
    variables = {**process.clean_environment(), **json.loads(file.read_text())["variables"]}
    python = shutil.which("python", path=variables["PATH"])
    return Target(pathlib.Path(python or "python"), variables)


def test_files(upstream: Upstream, release: str, frameworks: Container[str]) -> List[str]:
    """Return the test files of ``release`` for ``frameworks``; none without a known commit."""
    if release not in upstream.sources:
        return []
    found = [files for name, files in upstream.files.items() if name in frameworks]
    return list(itertools.chain.from_iterable(found))


def run_tests(
    upstream: Upstream, release: str, files: List[str], ranks: Ranks
) -> Iterator[Tuple[str, Dict[str, int], List[str]]]:
    """Run the test files of ``release``: those in parallel/ on two ranks, over each controller
    that was built, and others in one process.

    Yields:
        The file, with the launcher; then as `count`.

    Raises:
        HvdError: the source or a requirement cannot be fetched, or a rank left no outcomes.
    """
    commit = upstream.sources[release]
    source = paths.cache() / "horovod" / commit
    address = os.environ.get(_ADDRESS) or pinned().git["horovod"]
    clone.ensure(address, Pin(f"v{release}", commit), source, ranks.log)
    extra, target = ranks.scratch / "upstream", ranks.target
    command = [target.python, "-m", "pip", "install", "--target", extra, *upstream.requirements]
    process.run(command, log=ranks.log, env=dict(target.environment), timeout=_TESTS_TIMEOUT)
    # last: what the cell has comes before what the tests brought along
    python_path = [target.environment.get("PYTHONPATH", ""), str(extra)]
    tests = ranks.scratch / "upstream-tests"
    shutil.rmtree(tests, ignore_errors=True)
    shutil.copytree(source / "test", tests / "test")
    patch(tests, [PATCH], ranks.log)
    for file in map(pathlib.PurePath, files):
        path = tests / "test" / file
        # what tests send to the ranks that they start names their module
        found = os.pathsep.join(filter(None, [*python_path, str(path.parent)]))
        if file.parts[0] != _PARALLEL:
            yield (str(file), *count([_report(ranks, path, found)], upstream.failing))
            continue
        for launcher in ranks.launchers:
            reports = _reports(ranks, launcher, path, found)
            yield (f"{file.name}, {launcher.name}", *count(reports, upstream.failing))


def _report(ranks: Ranks, file: pathlib.Path, python_path: str) -> str:
    """Run pytest over a file in one process, which may start ranks; return its JUnit file."""
    own = ranks.target.environment
    with tempfile.TemporaryDirectory() as results:
        process.run(
            [ranks.target.python, PROGRAM, file, results],
            log=ranks.log,
            env={**own, **small_machine(own["PATH"]), "PYTHONPATH": python_path},
            timeout=_TESTS_TIMEOUT,
            cwd=results,
            check=False,
        )
        return _collected(results, 1, file.name, ranks.log)[0]


def _reports(ranks: Ranks, launcher: Launcher, file: pathlib.Path, python_path: str) -> List[str]:
    """Run pytest over a file on `_RANKS` ranks; return their JUnit files."""
    with tempfile.TemporaryDirectory() as results:
        variables = {"PYTHONPATH": python_path}
        asked = (launcher, _RANKS, [PROGRAM, file, results], variables, _TESTS_TIMEOUT)
        # pytest's exit status says no more than its results
        ranks.run(*asked, cwd=results, check=False)
        return _collected(results, _RANKS, f"{file.name}, {launcher.name}", ranks.log)


def _collected(directory: str, number: int, name: str, log: pathlib.Path) -> List[str]:
    reports = [path.read_text() for path in sorted(pathlib.Path(directory).glob("*.xml"))]
    if len(reports) != number:
        raise HvdError(
            f"{name}: {len(reports)} of {number} ranks finished",
            "see the log for their output",
            log,
        )
    return reports


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


def examples(frameworks: Container[str], distributions: Mapping[str, str]) -> Iterator[str]:
    """Yield the examples for a cell's ``frameworks`` and the versions of ``distributions``."""
    for name, (of, distribution, versions) in _EXAMPLES.items():
        version = distributions.get(distribution) or distributions.get(of, "")
        if of in frameworks and version and specs.version_in(version, versions):
            yield name


def rates(name: str, ranks: Ranks) -> Dict[str, float]:
    """Return an example's samples per second in the fastest epoch, by the number of ranks.

    Each rank has one core.

    Raises:
        HvdError: a run failed or printed too few rates.
    """
    found = {}
    for count in (1, 2):
        arguments = [paths.ROOT / "examples" / name / "train.py", "--epochs", _EPOCHS, *SIZES]
        arguments += ["--checkpoint", ranks.scratch / f"checkpoint-{name}-{count}"]
        asked = (ranks.launchers[0], count, [*arguments, *_OPTIONS.get(name, ())])
        with _cores(count):
            output = ranks.run(*asked, _THREADS, _EXAMPLE_TIMEOUT, cwd=ranks.scratch)
        epochs = [float(rate) for rate in _RATE.findall(output)]
        if len(epochs) != _EPOCHS:
            raise HvdError(
                f"examples/{name}: {len(epochs)} epochs of {_EPOCHS} on {count} ranks",
                log=ranks.log,
            )
        found[str(count)] = max(epochs)
    return found


@contextlib.contextmanager
def _cores(count: int) -> Iterator[None]:
    """Restrict what is started here to ``count`` cores, so that one rank has no second core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
