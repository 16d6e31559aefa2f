"""Horovod's own tests, from the release's source, with what a cell has built."""

from __future__ import annotations

import itertools
import os
import pathlib
import tempfile
from typing import Container, Dict, Iterator, List, Tuple

from junitparser import JUnitXml

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.fetch import clone
from hvd.matrix.definition import Upstream
from hvd.matrix.ranks import Ranks
from hvd.model.versions import Pin, pinned

PROGRAM = pathlib.Path(__file__).with_name("program_upstream.py")
#: The variable that replaces the address of Horovod's source in ci/versions.yaml.
ADDRESS = "HVD_HOROVOD"
_RANKS = 2
#: Seconds for one file of tests, which takes about five minutes.
_TIMEOUT = 1800
#: From the best to the worst.
_OUTCOMES = ("skipped", "passed", "failed")


def files(upstream: Upstream, release: str, frameworks: Container[str]) -> List[str]:
    """Return the test files of ``release`` for ``frameworks``; none without a known commit."""
    if release not in upstream.sources:
        return []
    return [
        file
        for framework, files in upstream.files.items()
        for file in files
        if framework in frameworks
    ]


def run(
    upstream: Upstream, release: str, files: List[str], ranks: Ranks
) -> Iterator[Tuple[str, Dict[str, int], List[str]]]:
    """Run each test file of ``release`` on two ranks, over each controller that was built.

    Yields:
        The file with the launcher; then as `count`.

    Raises:
        HvdError: the source or a requirement cannot be fetched, or a rank left no outcomes.
    """
    commit = upstream.sources[release]
    source = paths.cache() / "horovod" / commit
    address = os.environ.get(ADDRESS) or pinned().git["horovod"]
    clone.ensure(address, Pin(f"v{release}", commit), source, ranks.log)
    extra = ranks.scratch / "upstream"
    target = ranks.target
    command = [target.python, "-m", "pip", "install", "--target", extra, *upstream.requirements]
    process.run(command, log=ranks.log, env=dict(target.environment), timeout=_TIMEOUT)
    # last: what the cell has comes before what the tests brought along
    python_path = [target.environment.get("PYTHONPATH", ""), str(extra)]
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, python_path))}
    for file in files:
        for launcher in ranks.launchers:
            name = f"{file}, {launcher.name}"
            with tempfile.TemporaryDirectory() as scratch:
                results = pathlib.Path(scratch)
                arguments = [PROGRAM, source / "test" / "parallel" / file, results]
                # pytest's exit status says no more than its results
                ranks.run(
                    *(launcher, _RANKS, arguments, variables, _TIMEOUT), cwd=results, check=False
                )
                reports = [path.read_text() for path in sorted(results.glob("*.xml"))]
            if len(reports) != _RANKS:
                raise HvdError(
                    f"{name}: {len(reports)} of {_RANKS} ranks finished",
                    "see the log for their output",
                    ranks.log,
                )
            yield (name, *count(reports, upstream.failing))


def count(reports: List[str], failing: Container[str]) -> Tuple[Dict[str, int], List[str]]:
    """Count the tests in the ranks' JUnit files; a test counts as on its worst rank.

    Returns:
        How many tests passed, failed and were skipped; and those that failed and are not among
        the known ``failing``.
    """
    worst: Dict[str, str] = {}
    for report in reports:
        for case in itertools.chain.from_iterable(JUnitXml.fromstring(report)):
            name = f"{case.classname.rpartition('.')[2]}::{case.name}"
            failed = "failed" if case.is_failure or case.is_error else "passed"
            outcome = "skipped" if case.is_skipped else failed
            worst[name] = max(worst.get(name, outcome), outcome, key=_OUTCOMES.index)
    counts = {outcome: list(worst.values()).count(outcome) for outcome in _OUTCOMES}
    if not worst:
        return counts, ["every test: none was collected, which"]
    return counts, [n for n, came in worst.items() if came == "failed" and n not in failing]
