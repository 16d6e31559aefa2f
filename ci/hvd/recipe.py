"""Read a Spack recipe where there is no Spack.

The pip engine builds from the same ``package.py`` as Spack does: its versions and checksums,
defaults, conflicts and patches stand there and nowhere else.  The recipe is executed with
stand-ins for Spack's directives that do nothing but write down what they were called with.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import pathlib
import sys
import types
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from hvd import specs
from hvd.errors import HvdError
from hvd.paths import PACKAGES, shorten
from hvd.specs import Spec


@dataclasses.dataclass(frozen=True)
class Directive:
    """One call of a directive: its arguments and all conditions that it stands under."""

    name: str
    arguments: Tuple[Any, ...]
    keywords: Mapping[str, Any]
    when: Tuple[str, ...]

    def applies(self, spec: Spec) -> bool:
        """Whether ``spec`` meets every condition."""
        return all(spec.satisfies(_parsed(condition)) for condition in self.when)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A package's directives, and its ``build_flags`` module."""

    name: str
    directory: pathlib.Path
    directives: Tuple[Directive, ...]
    build_flags: types.ModuleType

    def named(self, name: str) -> List[Directive]:
        """All calls of the directive ``name``, in order."""
        return [directive for directive in self.directives if directive.name == name]

    def versions(self) -> Dict[str, str]:
        """Release to sha256, newest first; branches have none and are left out."""
        found = self.named("version")
        return {d.arguments[0]: d.keywords["sha256"] for d in found if "sha256" in d.keywords}

    def defaults(self, spec: Spec) -> Dict[str, specs.Value]:
        """The default of every variant that ``spec`` can have."""
        found: Dict[str, specs.Value] = {}
        for directive in self.named("variant"):
            if directive.applies(spec):
                default = directive.keywords["default"]
                if not isinstance(default, bool):
                    default = frozenset(str(default).split(","))
                found[directive.arguments[0]] = default
        return found

    def patches(self, spec: Spec) -> List[pathlib.Path]:
        """The patch files for ``spec``, in order."""
        return [self.directory / d.arguments[0] for d in self.named("patch") if d.applies(spec)]

    def check(self, spec: Spec) -> None:
        """Refuse ``spec`` where the recipe does.

        Raises:
            HvdError: with the recipe's own message.
        """
        for directive in self.refusals(spec):
            if "msg" in directive.keywords:
                raise HvdError(f"{spec.name}: {directive.keywords['msg']}")
            wanted = specs.parse(directive.arguments[0])
            raise HvdError(
                f"{spec.name}@{spec.versions} depends on {wanted}, but there is "
                f"{spec.dependencies[wanted.name]}",
                "take another version of either; see packages/py_horovod/package.py",
            )

    def refusals(self, spec: Spec) -> Iterator[Directive]:
        """The conflicts, requirements and dependencies that ``spec`` does not meet."""
        for directive in self.directives:
            if not directive.applies(spec):
                continue
            if directive.name == "conflicts":
                refused = spec.satisfies(_parsed(directive.arguments[0]))
            elif directive.name == "requires":
                refused = not _required(directive, spec)
            elif directive.name == "depends_on":
                wanted = _parsed(directive.arguments[0])
                have = spec.dependencies.get(wanted.name)
                refused = have is not None and not have.satisfies(wanted)
            else:
                refused = False
            if refused:
                yield directive


def load(name: str, packages: pathlib.Path = PACKAGES) -> Recipe:
    """Read the recipe of the Spack package ``name``.

    Raises:
        HvdError: there is no such recipe.
    """
    directory = packages / name.replace("-", "_")
    path = directory / "package.py"
    if not path.is_file():
        raise HvdError(
            f"{shorten(path)}: no such recipe", "the pip engine builds py-horovod alone"
        )
    flags = module("hvd_recipe.build_flags", directory / "build_flags.py")
    check_build = module("hvd_recipe.check_build", directory / "check_build.py")
    recorder = _Recorder()
    for mixin, variable in (("cuda", "cuda_arch"), ("rocm", "amdgpu_target")):
        # what CudaPackage and ROCmPackage declare
        recorder.directive("variant")(mixin, default=False)
        recorder.directive("variant")(variable, default="none", when=f"+{mixin}")
    with _stand_ins(recorder, flags, check_build):
        module("hvd_recipe.package", path)
    return Recipe(name, directory, tuple(recorder.directives), flags)


@functools.cache
def _parsed(text: str) -> Spec:
    """A spec that stands in the recipe, to be compared with and never changed."""
    return specs.parse(text)


def _required(directive: Directive, spec: Spec) -> bool:
    met = [spec.satisfies(_parsed(text)) for text in directive.arguments]
    if directive.keywords.get("policy", "one_of") == "any_of":
        return any(met)
    return sum(met) == 1


class _Recorder:
    """Stands in for the names of ``spack.package``."""

    def __init__(self) -> None:
        self.directives: List[Directive] = []
        self._conditions: List[str] = []

    def directive(self, name: str):
        def record(*arguments, **keywords):
            condition = keywords.pop("when", None)
            when = tuple(self._conditions) + ((condition,) if condition else ())
            self.directives.append(Directive(name, arguments, keywords, when))

        return record

    @contextlib.contextmanager
    def when(self, condition: str) -> Iterator[None]:
        self._conditions.append(condition)
        try:
            yield
        finally:
            self._conditions.pop()

    @contextlib.contextmanager
    def default_args(self, **_) -> Iterator[None]:
        # no default here (deptypes, deprecation) changes what the pip engine does
        yield


class _Base:
    """Stands in for Spack's package classes."""

    cuda_arch_values: Tuple[str, ...] = ()
    amdgpu_targets: Tuple[str, ...] = ()

    def __init_subclass__(cls, **_) -> None:
        pass


@contextlib.contextmanager
def _stand_ins(recorder: _Recorder, *siblings: types.ModuleType) -> Iterator[None]:
    api = types.ModuleType("spack.package")
    for name in ("version", "variant", "depends_on", "conflicts", "requires", "patch"):
        setattr(api, name, recorder.directive(name))
    for name in ("license", "maintainers", "extends", "provides", "resource"):
        setattr(api, name, lambda *_, **__: None)
    api.when = recorder.when
    api.default_args = recorder.default_args
    api.EnvironmentModifications = object
    api.run_after = lambda *_, **__: lambda function: function
    modules = {
        "spack": types.ModuleType("spack"),
        "spack.package": api,
        "hvd_recipe": types.ModuleType("hvd_recipe"),
    }
    for sibling in siblings:
        modules[sibling.__name__] = sibling
        setattr(modules["hvd_recipe"], sibling.__name__.rpartition(".")[2], sibling)
    for system in ("python", "cuda", "rocm", "generic"):
        module = types.ModuleType(f"spack_repo.builtin.build_systems.{system}")
        for name in ("PythonPackage", "CudaPackage", "ROCmPackage", "Package"):
            setattr(module, name, type(name, (_Base,), {}))
        modules[module.__name__] = module
    for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        modules[name] = types.ModuleType(name)
    hidden = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in hidden.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def module(name: str, path: pathlib.Path) -> types.ModuleType:
    """Execute the Python file ``path`` as a module, without leaving it in ``sys.modules``."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    module.__package__ = name.rpartition(".")[0]
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules.pop(name, None)
    return module
