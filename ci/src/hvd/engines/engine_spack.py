"""Build an environment with Spack."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from typing import Any, Dict, List, Mapping, Optional, Tuple

from hvd.core import paths, stamp
from hvd.core.errors import HvdError
from hvd.core.options import Sources
from hvd.core.run import Run
from hvd.core.steps import Step
from hvd.deliver import cache
from hvd.deliver.cache import Cache
from hvd.engines import components
from hvd.fetch import clone
from hvd.host import externals, framework
from hvd.model import recipe, solution
from hvd.model.built import Built, Modification, Software
from hvd.model.environment import HOROVOD, Environment
from hvd.model.solution import DagNode
from hvd.solve import location, queries, site_check
from hvd.solve.spack import Spack

#: Seconds for one `spack install`; a GPU stack from source takes hours.
_INSTALL_TIMEOUT = 24 * 3600
#: Packages that the report names besides the frameworks.
_REPORTED = ("openmpi", "mpich", "intel-mpi", "gcc", "llvm", "cmake", "cuda", "nccl")


def locate(sources: Sources, task: Step) -> Spack:
    """Find a Spack, or clone one, and say which on the line of ``task``."""
    spack = location.locate(sources, task.log)
    task.say(f"{spack.pair.name}: {paths.shorten(spack.root)}")
    return spack


@dataclasses.dataclass(frozen=True)
class SpackEngine:
    """The engine that concretizes and builds one environment with Spack."""

    environment: Environment
    spack: Spack
    python: str = ""  # interpreter whose frameworks are taken; empty for the pinned ones
    jobs: int = 1
    fresh: bool = False  # concretize and build anew
    cache: Optional[Cache] = None  # to install from, in place of building
    name = "spack"

    def setup(self, run: Run) -> Mapping[str, Any]:
        """Write Spack's configuration, and find what this machine has.

        Returns:
            What the interpreter has, see :func:`hvd.host.externals.ask`; nothing for a site.
        """
        with run.step("configuration"):
            self.spack.configure(self.jobs)
        if self.environment.site:
            return {"distributions": {}}
        found = framework.provide(run, self.environment, self.python)
        with run.step("compilers and build tools") as task:
            self.spack.find_tools(task.log, [pathlib.Path(found["python"]["prefix"], "bin")])
        return found

    def concretize(self, run: Run, found: Mapping[str, Any]) -> SpackSolution:
        """Solve the environment, unless nothing has changed since it was solved.

        ``found`` is what :meth:`setup` returned.
        """
        environment, lockfile = self.environment, self.environment.lockfile
        if not environment.site:
            self._refuse_externals(found)
        done = self.spack.state / environment.name / "concretized"
        pair = dataclasses.asdict(self.spack.pair)
        inputs = [pair, *environment.inputs(), self.spack.scope / "packages.yaml"]
        with run.step("spack concretize") as task:
            digest = stamp.of(*inputs)
            self._forget_other_pairs()
            if (
                not self.fresh
                and lockfile.exists()
                and stamp.matches(done, stamp.of(digest, lockfile))
            ):
                task.cached()
                return self.solution()
            self.spack.concretize(
                environment.directory, task.log, local=not environment.site, fresh=self.fresh
            )
            solved = self.solution()
            if environment.site:
                site_check.require(environment, solved.specs)
            stamp.put(done, stamp.of(digest, lockfile))
        return solved

    def solution(self) -> SpackSolution:
        """The solution of the environment as it stands in its lock file."""
        lockfile = self.environment.lockfile
        return SpackSolution(self, solution.read(lockfile.read_text(), paths.shorten(lockfile)))

    def _refuse_externals(self, found: Mapping[str, Any]) -> None:
        """Say at once what Spack would say of this machine's externals after minutes."""
        library = externals.find_mpi(found)
        have = externals.specs(externals.packages(found, library))
        horovod = recipe.load(HOROVOD)
        root = horovod.using(self.environment.root, have, library.package if library else "")
        horovod.accept(root)

    def _forget_other_pairs(self) -> None:
        """Remove what another Spack made of this environment: one cannot use another's view."""
        pair = self.spack.pair.name
        if pair_of(self.environment) == pair:
            return
        stamp.clear(self.environment.directory / ".spack-env")
        self.environment.lockfile.unlink(missing_ok=True)
        _owner(self.environment).write_text(pair)

    def commits(self) -> Dict[str, str]:
        """The commits of what builds, by name."""
        pair = self.spack.pair
        return {
            "Spack": clone.commit(self.spack.root) or pair.spack.commit,
            "Spack packages": clone.commit(self.spack.packages) or pair.packages.commit,
        }


@dataclasses.dataclass(frozen=True)
class SpackSolution:
    """A solved environment, and what builds it."""

    engine: SpackEngine
    specs: Mapping[str, Any]  # the concrete specs by hash, as the lock file has them

    @property
    def environment(self) -> Environment:
        return self.engine.environment

    @property
    def _nodes(self) -> Dict[str, Any]:
        return {node["name"]: node for node in self.specs.values()}

    def build(self, run: Run) -> None:
        """Fetch what is to be built into the mirror, and install the environment.

        With a binary cache, install it from that alone.
        """
        site_check.require_here(self.environment, self.specs)
        spack, directory = self.engine.spack, self.environment.directory
        if self.engine.cache:
            cache.install(spack, self.environment, self.specs, self.engine.cache, run)
            return
        if self.engine.fresh:
            with run.step(f"spack uninstall {HOROVOD}") as task:
                # it may not be installed yet
                arguments = ["uninstall", "--yes-to-all", "--force", HOROVOD]
                spack.run("-e", directory, *arguments, log=task.log, check=False)
        with run.step("sources") as task:
            wanted = spack.fetch_sources(directory, task.log, task.say)
        with run.step("spack install") as task:
            for each in wanted:
                # Spack would take what a killed run has unpacked in part for the whole
                for stage in spack.stages.glob(f"spack-stage-{each.name}-{each.version}-*/"):
                    shutil.rmtree(stage, ignore_errors=True)
            spack.run(
                *("-e", directory, "install", "--fail-fast", f"-j{self.engine.jobs}"),
                log=task.log,
                timeout=_INSTALL_TIMEOUT,
            )
            if not wanted:
                task.cached()

    def record(self, task: Step) -> Tuple[Built, List[components.Component]]:
        """The record of the build, and the packages that it consists of or was made with."""
        spack, directory = self.engine.spack, self.environment.directory
        found = spack.ask(directory, queries.BUILT, task.log)
        if found["other"]:
            raise HvdError(
                f"{self.environment.name}: no module can take back {', '.join(found['other'])}",
                "see setup_run_environment of the packages in it",
                task.log,
            )
        horovod = self._nodes[HOROVOD]
        done = components.record(
            self.environment,
            self.engine.name,
            solution.spec(horovod),
            {name: node["version"] for name, node in self._nodes.items()},
            target=solution.target(horovod),
            python=self._nodes["python"]["version"],
            compiler=Software(**found["compiler"]),
            mpi=Software(**found["mpi"]),
            changes=tuple(Modification(**each) for each in found["changes"]),
            variables=spack.activation(directory, task.log),
            modules=tuple(found["modules"]),
        )
        return done, components.of_solution(self.specs, found["parts"])

    def versions(self) -> Dict[str, str]:
        """The versions that the report names."""
        nodes, pair = self._nodes, self.engine.spack.pair
        titles = {HOROVOD: "Horovod", **externals.FRAMEWORKS, "python": "Python"}
        titles.update({name: name for name in _REPORTED})
        return {
            **{title: nodes[name]["version"] for name, title in titles.items() if name in nodes},
            "Spack": f"{pair.spack.version} ({pair.spack.commit[:12]})",
            "Spack packages": pair.packages.version,
        }

    def dag(self) -> List[DagNode]:
        """The concrete specs as nodes."""
        return solution.nodes(self.specs)

    def tree(self, log: pathlib.Path) -> str:
        """The solution as Spack prints it."""
        words = ("-e", self.environment.directory, "spec", "--long")
        return self.engine.spack.run(*words, log=log, timeout=300, check=False).output


def pair_of(environment: Environment) -> str:
    """The pair of Spack and packages that solved ``environment`` last; empty for none."""
    owner = _owner(environment)
    return owner.read_text().strip() if owner.exists() else ""


def _owner(environment: Environment) -> pathlib.Path:
    return paths.state() / f"{environment.name}.pair"
