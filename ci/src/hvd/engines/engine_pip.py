"""Build an environment with pip, where there is no Spack.

The same environment file, recipe, build flags and patches as with Spack, into a virtual
environment, as people without Spack do it.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
from typing import Any, Dict, List, Mapping, Optional, Tuple

from hvd.core import paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.run import Run
from hvd.core.steps import Step
from hvd.engines import components
from hvd.fetch import source
from hvd.host import accelerators, externals, framework, machine, mpi
from hvd.host.accelerators import Library
from hvd.host.mpi import Mpi
from hvd.model import recipe, specs
from hvd.model.built import Built, Modification, Software
from hvd.model.environment import HOROVOD, Environment
from hvd.model.recipe import Recipe
from hvd.model.solution import DagNode
from hvd.model.specs import Spec

_BUILD_TIMEOUT = 3600
#: Programs that a build needs, with the packages that have them.
_TOOLS = {"c++": "g++", "make": "make", "cmake": "cmake"}


@dataclasses.dataclass(frozen=True)
class PipEngine:
    """The engine that builds one environment's Horovod with pip."""

    environment: Environment
    python: str = ""  # interpreter whose frameworks are taken; empty for the pinned ones
    jobs: int = 1
    fresh: bool = False  # build anew
    name = "pip"

    @property
    def directory(self) -> pathlib.Path:
        return paths.state() / "pip" / self.environment.name

    @property
    def venv(self) -> pathlib.Path:
        return self.directory / "venv"

    def setup(self, run: Run) -> Mapping[str, Any]:
        """Find frameworks, MPI, and the tools of the build.

        Returns:
            What the interpreter has; see :func:`hvd.host.externals.ask`.
        """
        if self.environment.site:
            raise HvdError(
                f"{self.environment.name} describes another machine than this one",
                "build it with --engine spack",
            )
        found = framework.provide(run, self.environment, self.python)
        with run.step("compiler and build tools") as task:
            first = framework.in_front(found["python"]["executable"], externals.find_mpi(found))
            for program, package in _TOOLS.items():
                if not shutil.which(program, path=mpi.search_path(first)):
                    raise HvdError(
                        f"{program} is not on PATH", f"install it: the package {package}"
                    )
            task.say(f"{machine.compiler_name()} {machine.compiler_version()}")
        return found

    def concretize(self, run: Run, found: Mapping[str, Any]) -> PipSolution:
        """Fix version and variants; ``found`` is what :meth:`setup` returned."""
        with run.step("py-horovod's recipe") as task:
            horovod = recipe.load(HOROVOD)
            library = externals.find_mpi(found)
            spec, taken = self._concrete(horovod, found, library)
            horovod.check(spec)
            _require_dependencies(horovod, spec, found)
            task.say(str(dataclasses.replace(spec, dependencies={})))
        used = library if spec.variants.get("mpi") is True else None
        return PipSolution(self, horovod, found, spec, used, taken)

    def _concrete(
        self, horovod: Recipe, found: Mapping[str, Any], library: Optional[Mpi]
    ) -> Tuple[Spec, Mapping[str, Library]]:
        """The environment's Horovod with defaults filled in, and the accelerators it is for."""
        root = self.environment.root
        version = horovod.newest(root)
        have = externals.specs(externals.packages(found, library))
        compiler = machine.compiler_name()
        have[compiler] = Spec(compiler, machine.compiler_version())
        variants = horovod.complete(dataclasses.replace(root, versions=version)).variants
        variants.setdefault("target", frozenset({machine.processor()}))
        taken = _find_accelerators(variants, found)
        have.update({n: Spec(n, each.version) for n, each in taken.items() if each.version})
        for name, asked in root.dependencies.items():
            if name not in have or not have[name].satisfies(asked):
                raise HvdError(
                    f"{root.name} asks for {asked}, and this machine has {have.get(name, 'none')}",
                    "build it with --engine spack",
                )
        concrete = dataclasses.replace(
            root,
            versions=version,
            variants=variants,
            dependencies={compiler: have[compiler]},
        )
        return horovod.using(concrete, have, library.package if library else ""), taken

    def commits(self) -> Dict[str, str]:
        """The commits of what builds, by name: pip has none."""
        return {}


@dataclasses.dataclass(frozen=True)
class PipSolution:
    """A Horovod whose version and variants are fixed, and what builds it."""

    engine: PipEngine
    recipe: Recipe
    found: Mapping[str, Any]  # what the interpreter has
    spec: Spec  # with what it is built with
    mpi: Optional[Mpi]  # None for a Horovod without
    accelerators: Mapping[str, Library]  # what the variants ask for besides MPI and Gloo
    title = "pip install horovod"

    @property
    def environment(self) -> Environment:
        return self.engine.environment

    def build(self, run: Run) -> None:
        """Fetch, patch, compile and install Horovod, unless it was built from the same."""
        patches = self.recipe.patches(self.spec)
        # the number of jobs changes nothing of what is built
        flags = {**self.flags, "MAKEFLAGS": ""}
        digest = stamp.of(self._sha256, *patches, flags, self.found, machine.compiler_version())
        done = self.engine.directory / "stamp"
        if not self.engine.fresh and stamp.matches(done, digest):
            with run.step(self.title) as task:
                task.cached()
            return
        stamp.clear(self.engine.directory)
        with run.step("sources and patches") as task:
            tree = self.prepare(task.log)
            task.say(f"{len(patches)} patches")
        with run.step(self.title) as task:
            self.pip_install(tree, task.log)
        stamp.clear(tree)
        stamp.put(done, digest)

    def prepare(self, log: pathlib.Path) -> pathlib.Path:
        """Make an empty virtual environment, and return the source tree, patched."""
        sdist = source.sdist(self.recipe, self.spec.versions)
        tree = source.unpack(sdist, self.engine.directory / "source")
        source.patch(tree, self.recipe.patches(self.spec), log)
        self._make_venv(log)
        return tree

    @property
    def _sha256(self) -> str:
        return self.recipe.versions()[self.spec.versions]

    @property
    def flags(self) -> Mapping[str, str]:
        """The variables that the recipe sets for the build."""
        prefixes = {"cmake": self._cmake}
        if self.mpi:
            prefixes["mpi"] = str(self.mpi.prefix)
        if "mxnet" in self.spec.values("frameworks"):
            prefixes["mxnet"] = str(pathlib.Path(self.found["python"]["platlib"], "mxnet"))
        prefixes.update({name: str(lib.prefix) for name, lib in self.accelerators.items()})
        flags = machine.architecture_flags("".join(self.spec.values("target")))
        return self.recipe.build_environment(self.spec, prefixes, flags, self.engine.jobs)

    def pip_install(self, tree: pathlib.Path, log: pathlib.Path) -> None:
        """``pip install`` the source ``tree`` into the virtual environment."""
        environment = process.clean_environment(self._path)
        environment.update(self.mpi.variables if self.mpi else {})
        for name in self.recipe.module.LEAKS:
            environment.pop(name, None)
        process.run(
            [self.engine.venv / "bin" / "python", "-m", "pip", "install", "--verbose"]
            + ["--no-build-isolation", "--no-deps", "--no-index", "--no-cache-dir", tree],
            log=log,
            env={**environment, **self.flags},
            timeout=_BUILD_TIMEOUT,
        )

    def _make_venv(self, log: pathlib.Path) -> None:
        framework.venv_over(self.found, self.engine.venv, log)

    def record(self, task: Step) -> Tuple[Built, List[components.Component]]:
        """The record of the build; Horovod and every distribution of its interpreter."""
        have = {name: each["version"] for name, each in self._distributions.items()}
        variables = {"VIRTUAL_ENV": str(self.engine.venv), "PYTHONNOUSERSITE": "1"}
        variables.update(self.mpi.variables if self.mpi else {})
        changes = [Modification("prepend", "PATH", str(path)) for path in reversed(self._first)]
        changes += [Modification("set", name, value) for name, value in variables.items()]
        done = components.record(
            self.environment,
            self.engine.name,
            self.spec,
            have,
            target="".join(self.spec.values("target")),
            python=self.found["python"]["version"],
            compiler=Software(machine.compiler_name(), machine.compiler_version()),
            mpi=Software(self.mpi.package, self.mpi.version) if self.mpi else Software(),
            changes=tuple(changes),
            variables={"PATH": self._path, **variables},
            modules=(),
        )
        root = components.Component(
            name=self.spec.name,
            version=self.spec.versions,
            key=self.spec.name,
            distribution="horovod",
            sha256=self._sha256,
            prefix=str(self.engine.venv),
            patches=tuple(self.recipe.patches(self.spec)),
        )
        return done, components.of_distributions(root, self.found)

    def versions(self) -> Dict[str, str]:
        """The versions that the report names."""
        have = self._distributions
        found = {"Horovod": self.spec.versions, "Python": self.found["python"]["version"]}
        found.update({t: have[n]["version"] for n, t in externals.FRAMEWORKS.items() if n in have})
        if self.mpi:
            found[self.mpi.package] = self.mpi.version
        found.update({n: lib.version for n, lib in self.accelerators.items() if lib.version})
        found["cmake"] = framework.cmake_version(self._cmake)
        found[machine.compiler_name()] = machine.compiler_version()
        return found

    def dag(self) -> List[DagNode]:
        """Horovod and what it was built against; pip resolves nothing here."""
        root = DagNode(
            self.spec.name,
            self.spec.versions,
            str(Spec(variants=self.spec.variants)),
            prefix=str(self.engine.venv),
            depends_on=list(self.spec.dependencies),
        )
        prefixes = {
            name: entry["externals"][0]["prefix"]
            for name, entry in externals.packages(self.found, self.mpi).items()
            if "externals" in entry
        }
        return [root] + [
            DagNode(name, spec.versions, external=True, prefix=prefixes.get(name, ""))
            for name, spec in self.spec.dependencies.items()
        ]

    def tree(self, log: pathlib.Path) -> str:
        """The nodes of `dag`, one a line."""
        return "\n".join(f"{node.name}@{node.version}" for node in self.dag())

    @property
    def _distributions(self) -> Dict[str, Any]:
        return externals.by_package(self.found["distributions"])

    @property
    def _cmake(self) -> str:
        # a user's wrapper, as for Score-P
        return os.environ.get("HOROVOD_CMAKE") or shutil.which("cmake", path=self._path) or "cmake"

    @property
    def _path(self) -> str:
        return mpi.search_path(self._first)

    @property
    def _first(self) -> List[pathlib.Path]:
        """The directories that come first on PATH."""
        python = self.found["python"]["executable"]
        return [self.engine.venv / "bin", *framework.in_front(python, self.mpi)]


def _require_dependencies(horovod: Recipe, spec: Spec, found: Mapping[str, Any]) -> None:
    """Refuse an interpreter without what Horovod needs: pip is not let install it."""
    have = externals.by_package(found["distributions"])
    wanted = [
        specs.parse(directive.arguments[0]).name
        for directive in horovod.named("depends_on")
        if directive.applies(spec)
    ]
    missing = [
        name.replace("py-", "", 1)
        for name in dict.fromkeys(wanted)
        if name.startswith(("py-", "mxnet")) and name not in have
    ]
    if "py-setuptools" in have and not framework.makes_wheels(found["distributions"]):
        missing.append("wheel")
    if missing:
        python = found["python"]["executable"]
        raise HvdError(
            f"{python} has no {', '.join(missing)}",
            f"{python} -m pip install {' '.join(missing)}",
        )


def _find_accelerators(
    variants: Mapping[str, Any], found: Mapping[str, Any]
) -> Dict[str, Library]:
    """The libraries that ``variants`` ask for besides MPI and Gloo, by package."""
    chosen = {name for name, value in variants.items() if value is True}
    if "ddl" in chosen:
        raise HvdError(
            "+ddl: the pip engine builds for CPUs, CUDA and ROCm", "build it with --engine spack"
        )
    taken = {}
    if "cuda" in chosen:
        taken["cuda"] = accelerators.cuda()
    if "rocm" in chosen:
        taken.update(accelerators.rocm())
    if chosen >= {"nccl", "cuda"}:
        # an interpreter may have its framework from another one
        place = found["distributions"].get("torch", found["python"])
        site_packages = pathlib.Path(place.get("directory") or found["python"]["platlib"])
        taken["nccl"] = accelerators.nccl(site_packages, paths.state() / "nccl")
    if "ccl" in chosen:
        prefix = pathlib.Path(found["python"]["prefix"])
        taken["intel-oneapi-ccl"] = accelerators.ccl(prefix, paths.state() / "ccl")
    return taken
