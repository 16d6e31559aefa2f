"""Build an environment with Spack."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, Dict, List, Optional

from hvd.build import parts
from hvd.cache import transfer
from hvd.cache.cache import Cache
from hvd.core import paths, stamp
from hvd.core.errors import HvdError
from hvd.core.run import Run, Task
from hvd.fetch import clone, mirror
from hvd.host import externals, local
from hvd.model import built, recipe, solution
from hvd.model.built import Built, Change, Part
from hvd.model.check_build import Expectation
from hvd.model.dag import DagNode
from hvd.model.environment import HOROVOD, Environment
from hvd.solve import queries, site_check
from hvd.solve import spack as spack_module
from hvd.solve.spack import Sources

#: Seconds for one `spack install`; a GPU stack from source takes hours.
_INSTALL_TIMEOUT = 24 * 3600
_MPIS = ("openmpi", "mpich", "intel-mpi")


@dataclasses.dataclass
class SpackEngine:
    """The stages of one environment, done by Spack.

    Args:
        environment: what to build.
        sources: where Spack and its packages are.
        python: interpreter whose frameworks are taken; empty for the pinned ones.
        jobs: parallel compile jobs.
        fresh: concretize and build anew.
        cache: binary cache to install from, in place of building.
    """

    environment: Environment
    sources: Sources
    python: str = ""
    jobs: int = 1
    fresh: bool = False
    cache: Optional[Cache] = None
    name = "spack"

    def locate(self, task: Task) -> None:
        """Find a Spack, or clone one."""
        self.spack = spack_module.locate(self.sources, task.log)
        task.say(f"{self.spack.pair.name}: {paths.shorten(self.spack.root)}")

    def setup(self, run: Run) -> None:
        """Write Spack's configuration, and find what this machine has."""
        with run.step("configuration") as task:
            self.spack.configure(self.jobs)
        if self.environment.site:
            self.found = {"distributions": {}}
            return
        self.found = local.prepare(run, self.environment, self.python)
        with run.step("compilers and build tools") as task:
            first = pathlib.Path(self.found["python"]["prefix"], "bin")
            self.spack.find_tools(task.log, [first])

    def concretize(self, run: Run) -> None:
        """Solve the environment, unless nothing has changed since it was solved."""
        environment = self.environment
        if not environment.site:
            self._refuse_externals()
        done = self.spack.state / environment.name / "concretized"
        pair = dataclasses.asdict(self.spack.pair)
        inputs = [pair, *environment.inputs(), self.spack.scope / "packages.yaml"]
        with run.step("spack concretize") as task:
            digest = stamp.of(*inputs)
            lock = environment.lock
            self._forget_other_pairs()
            if not self.fresh and lock.exists() and stamp.matches(done, stamp.of(digest, lock)):
                task.cached()
                return
            self.spack.concretize(
                environment.directory, task.log, local=not environment.site, fresh=self.fresh
            )
            if environment.site:
                site_check.require(environment, self.solution())
            stamp.put(done, stamp.of(digest, lock))

    def _refuse_externals(self) -> None:
        """Say at once what Spack would say of this machine's externals after minutes.

        Raises:
            HvdError: the recipe refuses one of them, such as Open MPI 3.1.3.
        """
        library = externals.find_mpi(self.found)
        have = externals.specs(externals.packages(self.found, library))
        horovod = recipe.load(HOROVOD)
        root = horovod.using(self.environment.root, have, library.package if library else "")
        horovod.refuse(root)

    def _forget_other_pairs(self) -> None:
        """Remove what another Spack made of this environment: one cannot use another's view."""
        pair = self.spack.pair.name
        if pair_of(self.environment) == pair:
            return
        stamp.clear(self.environment.directory / ".spack-env")
        self.environment.lock.unlink(missing_ok=True)
        _owner(self.environment).write_text(pair)

    def build(self, run: Run) -> None:
        """Fetch what is to be built into the mirror, and install the environment.

        With a binary cache, install it from that alone.
        """
        directory = self.environment.directory
        if self.cache:
            transfer.install(self.spack, self.environment, self.solution(), self.cache, run)
            return
        if self.fresh:
            with run.step(f"spack uninstall {HOROVOD}") as task:
                # not installed yet is as good
                arguments = ["uninstall", "--yes-to-all", "--force", HOROVOD]
                self.spack.run("-e", directory, *arguments, log=task.log, check=False)
        with run.step("sources") as task:
            wanted = self.fill_mirror(task)
        with run.step("spack install") as task:
            self.spack.run(
                *("-e", directory, "install", "--fail-fast", f"-j{self.jobs}"),
                log=task.log,
                timeout=_INSTALL_TIMEOUT,
            )
            if not wanted:
                task.cached()

    def fill_mirror(self, task: Task) -> List[mirror.Source]:
        """Fetch what is to be built into the mirror.

        Returns:
            Everything that is to be built.
        """
        listing = self.spack.python(self.environment.directory, queries.SOURCES, task.log)
        wanted = mirror.parse(listing)

        def show(source: mirror.Source) -> None:
            task.say(f"{source.name}@{source.version}")

        count = mirror.fill(
            wanted, self.spack.mirror, self.spack.addresses, task.log, on_source=show
        )
        task.say(f"{count} fetched, {len(wanted)} to build")
        return wanted

    def activation(self, task: Task) -> Dict[str, str]:
        """The variables that make the built environment the active one."""
        return self.spack.activation(self.environment.directory, task.log)

    def built(self, task: Task) -> Built:
        """What was built, for the commands that come after.

        Raises:
            HvdError: the activation has a change that no module can take back.
        """
        output = self.spack.python(self.environment.directory, queries.BUILT, task.log)
        found = json.loads(output.splitlines()[-1])
        if found["other"]:
            raise HvdError(
                f"{self.environment.name}: no module can take back {', '.join(found['other'])}",
                "see setup_run_environment of the packages in it",
                task.log,
            )
        parameters = self._nodes()[HOROVOD]["parameters"]
        gpu = next((name for name in ("cuda", "rocm") if parameters.get(name)), "")
        architectures = parameters.get({"cuda": "cuda_arch", "rocm": "amdgpu_target"}.get(gpu, ""))
        expectation = self.expectation()
        return Built(
            environment=self.environment.name,
            engine=self.name,
            version=expectation.version,
            frameworks={name: self._framework(name) for name in parameters["frameworks"]},
            controllers=tuple(sorted(expectation.controllers)),
            operations=tuple(sorted(expectation.operations)),
            nccl_link=parameters.get("nccl_link", "shared") if parameters.get("nccl") else "",
            gpu=gpu,
            architectures=tuple(_listed(architectures)),
            gpu_mpi="mpi" in _listed(parameters.get("gpu_ops")),
            python=self._nodes()["python"]["version"],
            compiler=Part(**found["compiler"]),
            mpi=Part(**found["mpi"]),
            changes=tuple(Change(**each) for each in found["changes"]),
            variables=self.activation(task),
            modules=tuple(found["modules"]),
            inputs=built.inputs(self.environment, self.name),
            digest=self.digest(self.environment),
        )

    @staticmethod
    def digest(environment: Environment) -> str:
        """Of what it is made from: the solution."""
        return stamp.of(environment.lock)

    def _framework(self, name: str) -> str:
        package = externals.PACKAGES.get(name, f"py-{name}")
        return self._nodes().get(package, {}).get("version", "")

    def expectation(self) -> Expectation:
        """What was asked for, from the concrete spec."""
        node = self._nodes()[HOROVOD]
        parameters = node["parameters"]
        return Expectation.of(
            node["version"],
            parameters["frameworks"],
            [name for name in ("mpi", "gloo") if parameters[name]],
            # a variant that does not apply to the spec is not among its parameters
            [name for name in ("nccl", "ddl", "ccl") if parameters.get(name)],
        )

    def versions(self) -> Dict[str, str]:
        """The versions that matter, by the name that people use."""
        nodes = self._nodes()
        names = {**externals.FRAMEWORKS, "python": "Python"}
        found = {"Horovod": nodes[HOROVOD]["version"]}
        found.update({names[n]: nodes[n]["version"] for n in names if n in nodes})
        for package in (*_MPIS, "gcc", "llvm", "cmake", "cuda", "nccl"):
            if package in nodes:
                found[package] = nodes[package]["version"]
        found["Spack"] = f"{self.spack.pair.spack.version} ({self.spack.pair.spack.commit[:12]})"
        found["Spack packages"] = self.spack.pair.packages.version
        return found

    def dag(self) -> List[DagNode]:
        """The concrete specs of the lock file."""
        return solution.nodes(self.solution())

    def solution(self) -> Dict[str, Any]:
        """The concrete specs by hash, as the lock file has them."""
        return solution.read(
            self.environment.lock.read_text(), paths.shorten(self.environment.lock)
        )

    def parts(self, task: Task) -> List[parts.Part]:
        """What the build consists of, and what it was made with."""
        output = self.spack.python(self.environment.directory, queries.PARTS, task.log)
        return parts.of_solution(self.solution(), json.loads(output.splitlines()[-1]))

    def commits(self) -> Dict[str, str]:
        """The commits of what built it, by name."""
        pair = self.spack.pair
        return {
            "Spack": clone.commit(self.spack.root) or pair.spack.commit,
            "Spack packages": clone.commit(self.spack.packages) or pair.packages.commit,
        }

    def _nodes(self) -> Dict[str, Any]:
        return {node["name"]: node for node in self.solution().values()}


def pair_of(environment: Environment) -> str:
    """The pair of Spack and packages that solved ``environment`` last; empty for none."""
    owner = _owner(environment)
    return owner.read_text().strip() if owner.exists() else ""


def _owner(environment: Environment) -> pathlib.Path:
    return paths.STATE / f"{environment.name}.pair"


def _listed(value: Any) -> List[str]:
    """A variant's values; Spack writes one alone where there can be one only."""
    values = value if isinstance(value, list) else [value]
    return sorted(each for each in values if each not in (None, "none"))
