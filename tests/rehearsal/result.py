"""The result of a rehearsal, which an environment keeps as ``rehearsal.json``, and their page."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, Dict, Iterable, Iterator, List, Set

import yaml

from hvd.core import paths, stamp
from hvd.core.files import write_atomically
from hvd.model import environment as environments
from hvd.model import site as sites
from hvd.model.environment import Environment
from hvd.solve import kept, site_check
from tests.rehearsal.steps import FAILED, PASSED, StepResult

PAGE = paths.ROOT / "docs" / "rehearsals.md"
#: The packages that were built by themselves, with the series of Python or from where.
ALONE = pathlib.Path(__file__).with_name("built_alone.json")
#: The line of the page behind which all is made.
MADE = "<!-- made by ./hvd test tests/unit/test_rehearse.py --write-results -->\n"


@dataclasses.dataclass(frozen=True)
class Result:
    """A rehearsal."""

    environment: str
    date: str
    pair: str
    files: str  #: digest of the environment's and the site's
    spec: str  #: the root spec as it was rehearsed
    stand_ins: Dict[str, str]  #: what the site declares, and what was there in its place
    steps: List[StepResult]
    log: str  #: digest
    built: List[str] = dataclasses.field(default_factory=list)  #: by Spack, as ``name@version``

    @property
    def passed(self) -> bool:
        """No step failed, and Horovod was built."""
        results = {step.name: step.result for step in self.steps}
        return results.get("build") == PASSED and FAILED not in results.values()


def file(environment: Environment) -> pathlib.Path:
    return environment.directory / "rehearsal.json"


def save(path: pathlib.Path, result: Result) -> None:
    write_atomically(path, f"{json.dumps(dataclasses.asdict(result), indent=1)}\n".encode())


def load(path: pathlib.Path) -> Result:
    data = json.loads(path.read_text())
    return Result(**{**data, "steps": [StepResult(**step) for step in data["steps"]]})


def digest(environment: Environment) -> str:
    """Return a digest of all that a rehearsal is of: specs, externals, modules, launch rules."""
    content = yaml.safe_load(sites.file(environment.site).read_text())
    own = [environment.directory / "spack.yaml", site_check.file(environment.site)]
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


def kept_results() -> List[Result]:
    """Return the results that environments keep."""
    files = [file(environments.load(name)) for name in environments.of_sites()]
    return [load(path) for path in files if path.exists()]


def needed() -> Dict[str, List[str]]:
    """Return what solutions build: environments by package."""
    found: Dict[str, List[str]] = {}
    for name in environments.of_sites():
        for package in kept.built(kept.load(environments.load(name)).packages):
            found.setdefault(package, []).append(name)
    return dict(sorted(found.items()))


def by_itself() -> Dict[str, str]:
    """Return what was built by itself, and with what."""
    return json.loads(ALONE.read_text()) if ALONE.exists() else {}


def unbuilt(alone: bool = True) -> Dict[str, List[str]]:
    """Return what solutions build and no rehearsal has built: environments by package.

    Args:
        alone: leave out what was built by itself.
    """
    done = {package for each in kept_results() for package in each.built}
    done |= {*by_itself()} if alone else set()
    return {package: names for package, names in needed().items() if package not in done}


def page() -> str:
    """Return the page with the results that environments keep, behind its own introduction."""
    rehearsed = kept_results()
    results = [each for each in rehearsed if len(each.steps) > 1]
    steps = [s.name[:1].upper() + s.name[1:] for s in results[0].steps] if results else []
    rows = []
    for each in results:
        stacks = {"+cuda": "CUDA", "+rocm": "ROCm"}
        stack = next((stacks[variant] for variant in stacks if variant in each.spec), "CPUs")
        outcomes = [step.result for step in each.steps]
        rows.append([each.environment, each.date, stack, *outcomes])
    lines = _table(["Environment", "Date", "Built for", *steps], rows)
    for each in results:
        lines += [f"## `{each.environment}`", "", f"    {each.spec}", ""]
        lines += _table(["Declared", "In its place"], each.stand_ins.items())
        why = [f"- {step.name}: {step.result}: {step.why}" for step in each.steps if step.why]
        lines += [*why, ""] if why else []
    lines += ["## Where packages were built", "", _BUILT, *_horovods(results), ""]
    missing, rows = unbuilt(), []
    for package, names in needed().items():
        within = [each.environment for each in results if package in each.built]
        what = by_itself().get(package, "")
        own = [f"by itself, with {'Python ' * what[:1].isdigit()}{what}"] if what else []
        others = [name for name in names if name not in within]
        if package not in missing:
            rows.append([package, ", ".join([*within, *own]), ", ".join(others)])
    lines += _table(["Package", "Built in", "Also in the solutions of"], rows)
    told = {each.environment for each in results if each.built}
    rows = [
        [package, _reason(package, told & {*names}), ", ".join(names)]
        for package, names in missing.items()
    ]
    lines += ["## Not built here", "", _NOT_BUILT]
    lines += _table(["Package", "Why", "Built for"], rows)
    others = [each for each in rehearsed if each not in results]
    lines += ["## Not rehearsed here", ""]
    lines += [f"- `{each.environment}`, {each.date}: {each.steps[0].why}" for each in others]
    return PAGE.read_text().partition(MADE)[0] + MADE + "\n" + "\n".join(lines) + "\n"


_BUILT = """\
What the solutions of sites build besides Horovod, and the rehearsals in which Spack built it. What
a framework's environment has here was built by itself. Packages are compared by name and version
alone: a solution in the last column may ask for other variants, another Python or another
processor. `py-horovod` was built in each rehearsal, but not with this variant of the solution:
"""
_NOT_BUILT = "Results say what was built since 2026-11-27.\n"


def _horovods(results: Iterable[Result]) -> Iterator[str]:
    """Name the environments for GPUs whose Horovod was built for CPUs or not at all."""
    specs = {each.environment: each.spec for each in results}
    for variant in ("cuda", "rocm"):
        asked = [
            each
            for each in map(environments.load, environments.of_sites())
            if each.root.variants.get(variant)
        ]
        names = [each.name for each in asked if f"+{variant}" not in specs.get(each.name, "")]
        yield f"- `+{variant}`: {', '.join(names)}"


def _reason(package: str, rehearsed: Set[str]) -> str:
    """Why Spack has not built it in the rehearsals that say what was built."""
    if not rehearsed:
        return "no rehearsal since 2026-11-27"
    if package.startswith("py-"):
        return "no Python of the site's series is here"
    return "its source is not on the Python index, nor with its checksum in Debian"


def _table(titles: List[str], rows: Iterable[Iterable[str]]) -> List[str]:
    cells = [titles, [":---"] * len(titles), *rows]
    lines = [" | ".join(cell.replace("|", r"\|") for cell in row) for row in cells]
    return [*(f"| {line} |" for line in lines), ""]
