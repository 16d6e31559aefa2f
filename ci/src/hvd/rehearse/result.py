"""The result of a rehearsal, which an environment keeps as ``rehearsal.json``."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, Dict, List, Tuple

import cattrs
import yaml

from hvd.core import stamp
from hvd.core.files import write_atomically
from hvd.model import site as sites
from hvd.model.environment import Environment
from hvd.solve import site_check

PASSED, FAILED, NOT_SHOWN = "passed", "failed", "not shown"


@dataclasses.dataclass(frozen=True)
class StepResult:
    name: str
    result: str  #: one of the three
    seconds: float
    why: str = ""  #: where it did not pass


@dataclasses.dataclass(frozen=True)
class Result:
    """A rehearsal.

    Args:
        files: digest of the environment's and the site's files.
        spec: the root spec as it was rehearsed.
        stand_ins: what the site declares, to what was there in its place.
        log: digest of the log.
        built: what Spack built, each as ``name@version``.
    """

    environment: str
    date: str
    pair: str
    files: str
    spec: str
    stand_ins: Dict[str, str]
    steps: List[StepResult]
    log: str
    built: List[str] = dataclasses.field(default_factory=list)

    @property
    def passed(self) -> bool:
        """No step failed, and Horovod was built."""
        results = {step.name: step.result for step in self.steps}
        return results.get("build") == PASSED and FAILED not in results.values()


def file(environment: Environment) -> pathlib.Path:
    return environment.directory / "rehearsal.json"


def save(path: pathlib.Path, result: Result) -> None:
    text = json.dumps(cattrs.unstructure(result), indent=1)
    write_atomically(path, f"{text}\n".encode())


def load(path: pathlib.Path) -> Result:
    return cattrs.structure(json.loads(path.read_text()), Result)


def digest(environment: Environment) -> str:
    """Return a digest of all that a rehearsal is of: specs, externals, modules, launch rules."""
    machine = site_check.file(environment.site)
    content = yaml.safe_load(sites.file(environment.site).read_text())
    own = [environment.directory / "spack.yaml", machine]
    return stamp.of(*own, _without_dates(content))


def _without_dates(content: Any) -> Any:
    """``content`` without what a rehearsal itself changes: when it was checked, and how."""
    if isinstance(content, dict):
        return {k: _without_dates(v) for k, v in content.items() if k != "checked"}
    return [_without_dates(each) for each in content] if isinstance(content, list) else content


def stale(environment: Environment, date: str) -> str:
    """Return why ``checked: {by: rehearsal}`` of that date is not so; empty if it is."""
    path = file(environment)
    if not path.exists():
        return "there is no rehearsal.json"
    result = load(path)
    if not result.passed:
        return "the rehearsal did not pass"
    if result.files != digest(environment):
        return "files have changed since the rehearsal"
    return "" if result.date == date else f"the rehearsal is of {result.date}"


def counts(result: Result) -> Tuple[int, int, int]:
    """Return how many steps passed, failed, and were not shown."""
    found = [step.result for step in result.steps]
    return found.count(PASSED), found.count(FAILED), found.count(NOT_SHOWN)
