"""Solve everything with the newest Spack and its newest packages, and find what broke it.

The supported pairs stay out of it: environments are solved in directories of their own, by
checkouts of their own.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from hvd.build import solve_all
from hvd.build.pipeline import Options
from hvd.core import console, lock, paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.run import Run
from hvd.fetch import clone
from hvd.fetch.history import Commit, History
from hvd.model import environment
from hvd.model.environment import HOROVOD, Environment
from hvd.model.versions import Pair, Pin, pinned
from hvd.report import templates
from hvd.report.text import plain
from hvd.solve import location
from hvd.solve.spack import UNCACHED, Spack

#: Raised whenever a field is added, removed or changes its meaning.
FORMAT = 2
KINDS = ("spack", "packages")
#: Lines of Spack's error that a report has.
_LINES = 12
#: Commits of both repositories, by kind.
Commits = Mapping[str, str]


@dataclasses.dataclass
class Broken:
    """A subject that has no right solution any more."""

    name: str
    reason: str  #: the end of what Spack or the check of the site said
    kind: str = ""  #: of the repository that broke it; empty if it is not known
    commit: Optional[Commit] = None  #: the first one with which it fails
    note: str = ""  #: why no commit is named


@dataclasses.dataclass(frozen=True)
class Report:
    """The findings; each mapping is by kind of repository."""

    date: str
    pair: str
    newest: Dict[str, Commit]
    pinned: Dict[str, Commit]  #: those of the pair that is supported
    between: Dict[str, int]  #: the number of commits between them
    fix_needed: bool  #: the newest Spack lacks what `location.FIX` adds
    tried: List[str]
    broken: List[Broken]

    def write(self, directory: pathlib.Path) -> List[pathlib.Path]:
        """Write ``report.json``, and ``report.md``, which is fit for the text of an issue."""
        data = json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n"
        page = templates.render("upkeep/canary.md.j2", report=self)
        files = [directory / "report.md", directory / "report.json"]
        for file, text in zip(files, (page, data)):
            write_atomically(file, text.encode())
        return files


def names() -> List[str]:
    """Return what is solved: plain py-horovod, and every environment."""
    return [HOROVOD, *environment.names()]


def run(subjects: Sequence[str], options: Options) -> Report:
    """Solve ``subjects``, of :func:`names`, with the newest commits, and bisect what fails.

    Args:
        options: ``sources`` has the addresses of the repositories, and the pair that is known
            to work; by default the official ones, and the pair with the newest packages.

    Raises:
        HvdError: a repository cannot be reached.
        StageFailed: a checkout cannot be set up.
    """
    sources = options.sources
    named = {
        "spack": sources.spack,
        "packages": sources.packages,
        "compiler-wrapper": sources.compiler_wrapper,
    }
    addresses = {**pinned().git, **{kind: each for kind, each in named.items() if each}}
    newest_pair = max(pinned().pairs, key=lambda each: each.packages.version)
    pair = pinned().pair(sources.pair) if sources.pair else newest_pair
    good = {"spack": pair.spack.commit, "packages": pair.packages.commit}
    process.adopt_orphans()
    with lock.exclusive(paths.state() / "lock"):
        canary = _Canary(options, addresses)
        newest = canary.fetch(good)
        fix_needed = canary.needs_fix(newest["spack"].id)
        bad = {kind: newest[kind].id for kind in KINDS}
        failures = canary.failures(subjects, bad)
        broken = [Broken(name, reason) for name, reason in failures.items()]
        # several at a time
        for commits in (good, {**good, "packages": bad["packages"]}):
            canary.failures(failures, commits)
        for each in broken:
            canary.blame(each, good, bad, broken)
    histories = canary.histories
    return Report(
        date=datetime.date.today().isoformat(),
        pair=pair.name,
        newest=newest,
        pinned={kind: histories[kind].commit(good[kind]) for kind in KINDS},
        between={kind: histories[kind].between(good[kind], bad[kind]) for kind in KINDS},
        fix_needed=fix_needed,
        tried=list(subjects),
        broken=broken,
    )


class _Canary:
    """The repositories, and solves with any of their commits."""

    def __init__(self, options: Options, addresses: Mapping[str, str]) -> None:
        self.options = dataclasses.replace(options, fresh=True)
        self.addresses = addresses
        self.run = Run("canary", "spack", options.verbose)
        cache = paths.cache() / "canary"
        self.histories = {
            # one for each address: a fork's commits are of no use to another
            kind: History(addresses[kind], cache / f"{kind}-{stamp.of(addresses[kind])[:8]}")
            for kind in KINDS
        }
        #: Reasons of failures by name, empty for what is right, by the commits of `KINDS`.
        self._known: Dict[Tuple[str, ...], Dict[str, str]] = {}

    def fetch(self, good: Commits) -> Dict[str, Commit]:
        """Fetch both histories with the good commits, and return the newest commits."""
        found = {}
        with self.run.stage("setup"):
            for kind, history in self.histories.items():
                with self.run.step(f"history of {kind}") as task:
                    found[kind] = history.fetch(good[kind])
                    between = history.between(good[kind], found[kind].id)
                    task.say(f"{found[kind].id[:12]} of {found[kind].date}, {between} commits")
        return found

    def needs_fix(self, commit: str) -> bool:
        """Return whether Spack at ``commit`` lacks what `location.FIX` adds."""
        place = paths.state() / "canary" / "spack"
        self.histories["spack"].checkout(commit, place)
        return clone.git("apply", "--check", location.FIX, within=place).returncode == 0

    def failures(self, subjects: Iterable[str], commits: Commits) -> Dict[str, str]:
        """Return the reason for each of ``subjects`` that has no right solution."""
        known = self._known.setdefault(tuple(commits[kind] for kind in KINDS), {})
        wanted = [name for name in subjects if name not in known]
        if wanted:
            console.note(", ".join(f"{kind} {commits[kind][:12]}" for kind in KINDS))
            known.update(self._solve(wanted, commits))
        return {name: known[name] for name in subjects if known[name]}

    def _solve(self, subjects: Sequence[str], commits: Commits) -> Dict[str, str]:
        """Return the reasons of failures, empty for what is right."""
        spack = self._spack(commits)
        found: Dict[str, str] = {}
        environments = [_apart(name) for name in subjects if name != HOROVOD]
        with self.run.stage("setup"):
            tasks = solve_all.set_up(environments, spack, self.options, self.run)
            if HOROVOD in subjects:
                with self.run.step("plain configuration") as task:
                    spack.configure(self.options.jobs)
                    spack.find_tools(task.log, [])
        with self.run.stage("concretize"):
            if HOROVOD in subjects:
                # as a user does who has added the repository, and nothing else
                with self.run.step(f"spack spec {HOROVOD}") as task:
                    found[HOROVOD] = ""
                    try:
                        spack.run(*UNCACHED, "spec", HOROVOD, log=task.log, timeout=3600)
                    except HvdError as error:
                        task.failed(error.message)
                        found[HOROVOD] = _reason(error)
            titles = {each.name: environment.base(each) for each in environments}
            for step, _, error in solve_all.solve_each(tasks) if tasks else ():
                found[titles[step.name]] = _reason(error) if error else ""
        return found

    def _spack(self, commits: Commits) -> Spack:
        """Check the commits out, and return the Spack that they make."""
        place = paths.state() / "canary"
        places = {kind: place / kind for kind in KINDS}
        for kind in KINDS:
            self.histories[kind].checkout(commits[kind], places[kind])
        version = location.version(places["spack"])
        # of its own for each Spack: what a newer one writes, an older one may not read
        name = f"canary/{commits['spack'][:12]}"
        pair = Pair(name, Pin(version, commits["spack"]), Pin("develop", commits["packages"]))
        return Spack(places["spack"], places["packages"], pair, self.addresses)

    def blame(self, each: Broken, good: Commits, bad: Commits, others: Sequence[Broken]) -> None:
        """Find the commit that broke ``each``, by those of ``others`` first."""
        if self.failures([each.name], good):
            each.note = "It has no right solution with the supported pair either."
            return
        for kind, fixed in (("packages", good), ("spack", good), ("packages", bad)):
            ends = [{**fixed, kind: side[kind]} for side in (good, bad)]
            if self.failures([each.name], ends[1]) and not self.failures([each.name], ends[0]):
                each.kind = kind
                each.commit = self._culprit(each, *ends, kind, others)
                if each.commit is None:
                    each.note = "It fails where the pinned release begins, and was fixed there."
                return
        each.note = "No commit of one repository breaks it alone."

    def _culprit(
        self, each: Broken, good: Commits, bad: Commits, kind: str, others: Sequence[Broken]
    ) -> Optional[Commit]:
        history = self.histories[kind]
        for other in others:
            if other.commit and other.kind == kind:
                before = history.commit(f"{other.commit.id}^").id
                after = self.failures([each.name], {**bad, kind: other.commit.id})
                if after and not self.failures([each.name], {**bad, kind: before}):
                    return other.commit
        directory = paths.state() / "canary" / kind

        def is_good() -> bool:
            current = history.commit_of(directory)
            return not self.failures([each.name], {**bad, kind: current})

        return history.first_bad(good[kind], bad[kind], directory, is_good)


def _apart(name: str) -> Environment:
    """Return an environment with a directory of its own, so that the other keeps its solution."""
    base = environment.load(name)
    (root,) = (text for text in base.specs if text.startswith(HOROVOD))
    return environment.derive(base, root)


def _reason(error: HvdError) -> str:
    """Return the end of what a command said, or else the message."""
    tail = plain(error.tail).splitlines()
    # the command itself is full of paths of this machine
    said = [line for line in tail if line.strip() and not line.startswith("$ ")]
    return "\n".join(said[-_LINES:]) or error.message
