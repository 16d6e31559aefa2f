"""Build an environment with pip, where no Spack can be had.

The same environment file, recipe, build flags and patches as with Spack, into a virtual
environment, as people without Spack do it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from typing import Any, Dict, List, Mapping, Tuple

from packaging.version import Version

from hvd.build import parts
from hvd.core import paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.run import Run, Task
from hvd.fetch import source
from hvd.host import accelerators, externals, framework, local, machine, mpi
from hvd.model import built, specs
from hvd.model import recipe as recipe_module
from hvd.model.built import Built, Change, Part
from hvd.model.check_build import Expectation
from hvd.model.dag import DagNode
from hvd.model.environment import HOROVOD, Environment
from hvd.model.specs import Spec

_BUILD_TIMEOUT = 3600


@dataclasses.dataclass
class PipEngine:
    """The stages of one environment, done by pip.

    Args:
        environment: what to build.
        python: interpreter whose frameworks are taken; empty for the pinned ones.
        jobs: parallel compile jobs.
        fresh: build anew.
    """

    environment: Environment
    python: str = ""
    jobs: int = 1
    fresh: bool = False
    name = "pip"

    @property
    def directory(self) -> pathlib.Path:
        return paths.STATE / "pip" / self.environment.name

    @property
    def venv(self) -> pathlib.Path:
        return self.directory / "venv"

    def setup(self, run: Run) -> None:
        """Have the frameworks, MPI, and the tools of the build."""
        if self.environment.site:
            raise HvdError(
                f"{self.environment.name} describes another machine than this one",
                "build it with --engine spack",
            )
        self.found = local.prepare(run, self.environment, self.python)
        self.mpi = externals.find_mpi(self.found)
        with run.step("compiler and build tools") as task:
            task.say(self._require_tools())

    def concretize(self, run: Run) -> None:
        """Fix version and variants, and refuse what the recipe refuses."""
        with run.step("py-horovod's recipe") as task:
            self.recipe = recipe_module.load(HOROVOD)
            self.spec = self._concrete()
            self.recipe.check(self.spec)
            self._require_dependencies()
            if not self._on("mpi"):
                self.mpi = None  # it is not used
            task.say(str(dataclasses.replace(self.spec, dependencies={})))

    def build(self, run: Run) -> None:
        """Fetch, patch, compile and install Horovod."""
        patches = self.recipe.patches(self.spec)
        flags = self._flags()
        digest = stamp.of(self._sha256, *patches, flags, self.found, machine.compiler_version())
        done = self.directory / "stamp"
        if not self.fresh and stamp.matches(done, digest):
            with run.step("pip install horovod") as task:
                task.cached()
            return
        stamp.clear(self.directory)
        with run.step("sources and patches") as task:
            tree, _ = self.prepare(task.log)
            task.say(", ".join(patch.name for patch in patches))
        with run.step("pip install horovod") as task:
            self.pip_install(tree, flags, task.log)
        stamp.clear(tree)
        stamp.put(done, digest)

    def prepare(self, log: pathlib.Path) -> Tuple[pathlib.Path, Mapping[str, str]]:
        """Have the patched source tree and an empty virtual environment.

        Returns:
            The tree, and the variables to build it with.
        """
        sdist = source.sdist(self.recipe, self.spec.versions)
        tree = source.unpack(sdist, self.directory / "source")
        source.patch(tree, self.recipe.patches(self.spec), log)
        self._make_venv(log)
        return tree, self._flags()

    @property
    def _sha256(self) -> str:
        return self.recipe.versions()[self.spec.versions]

    def _flags(self) -> Mapping[str, str]:
        """The variables that the recipe sets for the build."""
        prefixes = {"cmake": self._cmake}
        if self.mpi:
            prefixes["mpi"] = str(self.mpi.prefix)
        if "mxnet" in self.spec.variants["frameworks"]:
            prefixes["mxnet"] = str(pathlib.Path(self.found["python"]["platlib"], "mxnet"))
        prefixes.update({name: str(lib.prefix) for name, lib in self._accelerators.items()})
        flags = machine.architecture_flags("".join(self._values("target")))
        return self.recipe.build_environment(self.spec, prefixes, flags, self.jobs)

    def _on(self, *names: str) -> List[str]:
        """Those of the variants ``names`` that are on."""
        return [name for name in names if self.spec.variants.get(name) is True]

    def _values(self, name: str) -> Tuple[str, ...]:
        """The values of the variant ``name`` but "none"."""
        return tuple(sorted(self.spec.variants.get(name, frozenset()) - {"none"}))

    def pip_install(self, tree: pathlib.Path, flags: Mapping[str, str], log: pathlib.Path) -> None:
        """``pip install`` the source ``tree`` into the virtual environment."""
        process.run(
            [self.venv / "bin" / "python", "-m", "pip", "install", "--verbose"]
            + ["--no-build-isolation", "--no-deps", "--no-index", "--no-cache-dir", tree],
            log=log,
            env=self._build_environment(flags),
            timeout=_BUILD_TIMEOUT,
        )

    def activation(self, task: Task) -> Dict[str, str]:
        """The variables that make the built environment the active one."""
        return {"PATH": self._path(), **self._variables()}

    def _variables(self) -> Dict[str, str]:
        variables = self.mpi.variables if self.mpi else {}
        return {"VIRTUAL_ENV": str(self.venv), "PYTHONNOUSERSITE": "1", **variables}

    def built(self, task: Task) -> Built:
        """What was built, for the commands that come after."""
        have = externals.by_package(self.found["distributions"])
        packages = {name: externals.PACKAGES.get(name, f"py-{name}") for name in self._frameworks}
        expectation = self.expectation()
        changes = [Change("prepend", "PATH", str(path)) for path in reversed(self._first())]
        changes += [Change("set", name, value) for name, value in self._variables().items()]
        library = self.mpi if "mpi" in expectation.controllers else None
        return Built(
            environment=self.environment.name,
            engine=self.name,
            version=expectation.version,
            frameworks={n: have.get(p, {}).get("version", "") for n, p in packages.items()},
            controllers=tuple(sorted(expectation.controllers)),
            operations=tuple(sorted(expectation.operations)),
            nccl_link="".join(self._values("nccl_link")),
            gpu="".join(self._on("cuda")),
            architectures=self._values("cuda_arch"),
            gpu_mpi="mpi" in self._values("gpu_ops"),
            python=self.found["python"]["version"],
            compiler=Part(machine.compiler_name(), machine.compiler_version()),
            mpi=Part(library.package, library.version) if library else Part(),
            changes=tuple(changes),
            variables=self.activation(task),
            modules=(),
            inputs=built.inputs(self.environment, self.name),
            digest=self.digest(self.environment),
        )

    @property
    def _frameworks(self) -> List[str]:
        return list(self._values("frameworks"))

    @staticmethod
    def digest(environment: Environment) -> str:
        """Of what it was made from; of nothing while it is not whole."""
        return stamp.of(PipEngine(environment).directory / "stamp")

    def expectation(self) -> Expectation:
        """What was asked for."""
        return Expectation.of(
            self.spec.versions,
            self._frameworks,
            self._on("mpi", "gloo"),
            self._on("nccl", "ddl", "ccl"),
        )

    def versions(self) -> Dict[str, str]:
        """The versions that matter, by the name that people use."""
        have = externals.by_package(self.found["distributions"])
        found = {"Horovod": self.spec.versions, "Python": self.found["python"]["version"]}
        names = externals.FRAMEWORKS
        found.update({names[n]: have[n]["version"] for n in names if n in have})
        if self.mpi:
            found[self.mpi.package] = self.mpi.version
        found["cmake"] = framework.cmake_version(self._cmake)
        found[machine.compiler_name()] = machine.compiler_version()
        return found

    def dag(self) -> List[DagNode]:
        """Horovod and what it was built against; pip resolves nothing here."""
        root = DagNode(
            self.spec.name,
            self.spec.versions,
            str(Spec(variants=self.spec.variants)),
            prefix=str(self.venv),
            depends_on=list(self.spec.dependencies),
        )
        prefixes = {
            name: entry["externals"][0]["prefix"]
            for name, entry in self._externals().items()
            if "externals" in entry
        }
        return [root] + [
            DagNode(name, spec.versions, external=True, prefix=prefixes.get(name, ""))
            for name, spec in self.spec.dependencies.items()
        ]

    def parts(self, task: Task) -> List[parts.Part]:
        """Horovod, and every distribution of the interpreter that it was built for."""
        root = parts.Part(
            name=self.spec.name,
            version=self.spec.versions,
            key=self.spec.name,
            distribution="horovod",
            sha256=self._sha256,
            prefix=str(self.venv),
            patches=tuple(self.recipe.patches(self.spec)),
        )
        return parts.of_distributions(root, self.found)

    def commits(self) -> Dict[str, str]:
        """The commits of what built it, by name: pip has none."""
        return {}

    def _externals(self) -> Dict[str, Any]:
        return externals.packages(self.found, self.mpi)

    def _require_tools(self) -> str:
        path = mpi.search_path(framework.in_front(self._framework_python, self.mpi))
        for program, package in (("c++", "g++"), ("make", "make"), ("cmake", "cmake")):
            if not shutil.which(program, path=path):
                raise HvdError(f"{program} is not on PATH", f"install it: the package {package}")
        return f"{machine.compiler_name()} {machine.compiler_version()}"

    @property
    def _framework_python(self) -> str:
        return self.found["python"]["executable"]

    @property
    def _cmake(self) -> str:
        return shutil.which("cmake", path=self._path()) or "cmake"

    def _path(self) -> str:
        return mpi.search_path(self._first())

    def _first(self) -> List[pathlib.Path]:
        """The directories that come first on PATH."""
        return [self.venv / "bin", *framework.in_front(self._framework_python, self.mpi)]

    def _concrete(self) -> Spec:
        """The environment's Horovod with defaults filled in and what it will be built with."""
        root = self.environment.root
        for version in self.recipe.versions():
            if not root.versions or specs.version_in(version, root.versions):
                break
        else:
            raise HvdError(
                f"the recipe has no {root.name}@{root.versions}",
                f"it has {', '.join(self.recipe.versions())}",
            )
        have = externals.specs(self._externals())
        compiler = machine.compiler_name()
        have[compiler] = Spec(compiler, machine.compiler_version())
        variants = self.recipe.complete(dataclasses.replace(root, versions=version)).variants
        variants.setdefault("target", frozenset({machine.processor()}))
        self._accelerators = self._find_accelerators(variants)
        for name, library in self._accelerators.items():
            if library.version:
                have[name] = Spec(name, library.version)
        for name, asked in root.dependencies.items():
            if name not in have or not have[name].satisfies(asked):
                raise HvdError(
                    f"{root.name} asks for {asked}, and this machine has {have.get(name, 'none')}",
                    "build it with --engine spack",
                )
        concrete = Spec(root.name, version, variants, {compiler: have[compiler]})
        return self.recipe.using(concrete, have, self.mpi.package if self.mpi else "")

    def _require_dependencies(self) -> None:
        """Refuse an interpreter without what Horovod needs: pip is not let install it."""
        have = externals.by_package(self.found["distributions"])
        wanted = [
            specs.parse(directive.arguments[0]).name
            for directive in self.recipe.named("depends_on")
            if directive.applies(self.spec)
        ]
        missing = [
            name.replace("py-", "", 1)
            for name in dict.fromkeys(wanted)
            if name.startswith(("py-", "mxnet")) and name not in have
        ]
        setuptools = have.get("py-setuptools", {}).get("version", "")
        # https://setuptools.pypa.io/en/stable/history.html#v70-1-0: it makes wheels by itself
        if setuptools and Version(setuptools) < Version("70.1") and "py-wheel" not in have:
            missing.append("wheel")
        if missing:
            raise HvdError(
                f"{self._framework_python} has no {', '.join(missing)}",
                f"{self._framework_python} -m pip install {' '.join(missing)}",
            )

    def _find_accelerators(self, variants: Mapping[str, Any]) -> Dict[str, accelerators.Library]:
        """What the variants ask for besides a CPU, MPI and Gloo."""
        chosen = {name for name, value in variants.items() if value is True}
        unknown = sorted(chosen & {"rocm", "ddl"})
        if unknown:
            raise HvdError(
                f"+{unknown[0]}: the pip engine builds for CPUs and for CUDA",
                "build it with --engine spack",
            )
        found = {}
        if "cuda" in chosen:
            found["cuda"] = accelerators.cuda()
        if "nccl" in chosen:
            site_packages = pathlib.Path(self.found["python"]["platlib"])
            found["nccl"] = accelerators.nccl(site_packages, paths.STATE / "nccl")
        if "ccl" in chosen:
            prefix = pathlib.Path(self.found["python"]["prefix"])
            found["intel-oneapi-ccl"] = accelerators.ccl(prefix, paths.STATE / "ccl")
        return found

    def _make_venv(self, log: pathlib.Path) -> None:
        """A virtual environment of the frameworks' Python that sees the frameworks."""
        # without a pip and setuptools of its own: the frameworks' are the pinned ones
        command = [self._framework_python, "-m", "venv", "--without-pip", self.venv]
        process.run(command, log=log)
        ask = "import sysconfig; print(sysconfig.get_paths()['platlib'])"
        for python in (self._framework_python, self.venv / "bin" / "python"):
            done = process.run([python, "-c", ask], log=log)
            directory = pathlib.Path(done.output.splitlines()[-1])
            if python == self._framework_python:
                frameworks = directory
        # with the .pth files of the frameworks' place, one of which is setuptools' distutils
        line = f"import site; site.addsitedir({str(frameworks)!r})\n"
        (directory / "hvd-frameworks.pth").write_text(line)

    def _build_environment(self, flags: Mapping[str, str]) -> Dict[str, str]:
        environment = process.clean_environment(self._path())
        environment.update(self.mpi.variables if self.mpi else {})
        for name in self.recipe.module.LEAKS:
            environment.pop(name, None)
        return {**environment, **flags}
