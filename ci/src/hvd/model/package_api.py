"""Spack's Package API, as far as our recipes use it, where there is no Spack.

A recipe is executed with stand-ins for the directives, which record their calls.  Its
``setup_build_environment`` gets stand-ins for a concrete spec and an environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import sys
import types
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

from hvd.model import specs
from hvd.model.specs import Spec


@dataclasses.dataclass(frozen=True)
class Directive:
    """One call of a directive: its arguments and all conditions that it stands under."""

    name: str
    arguments: Tuple[Any, ...]
    keywords: Mapping[str, Any]
    when: Tuple[str, ...]

    def applies(self, spec: Spec) -> bool:
        """Return whether ``spec`` meets every condition."""
        return all(spec.satisfies(specs.parse_once(condition)) for condition in self.when)


def read(path: pathlib.Path) -> Tuple[Tuple[Directive, ...], types.ModuleType]:
    """Execute the recipe ``path``: its calls of directives, and its module."""
    recorder = _Recorder()
    for mixin, variable in (("cuda", "cuda_arch"), ("rocm", "amdgpu_target")):
        # what CudaPackage and ROCmPackage declare
        recorder.directive("variant")(mixin, default=False)
        recorder.directive("variant")(variable, default="none", when=f"+{mixin}")
    with _stand_ins(recorder):
        executed = module("hvd_recipe.package", path)
    return tuple(recorder.directives), executed


class _Recorder:
    """Stands in for the names of ``spack.package``."""

    def __init__(self) -> None:
        self.directives: List[Directive] = []
        self._conditions: List[str] = []

    def directive(self, name: str) -> Callable[..., None]:
        def record(*arguments: Any, **keywords: Any) -> None:
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

    #: Those with a letter; what the recipe says of the others comes from the packages it names.
    cuda_arch_values = tuple(
        f"{capability}{letter}" for capability in (90, 100, 103, 110, 120, 121) for letter in "af"
    )
    amdgpu_targets: Tuple[str, ...] = ()

    def __init_subclass__(cls, **_) -> None:
        pass


class Variables(Dict[str, str]):
    """Stands in for Spack's modifications of an environment that has none of the variables."""

    def set(self, name: str, value: str) -> None:
        self[name] = str(value)

    def unset(self, name: str) -> None:
        self.pop(name, None)


class ConcreteSpec:
    """Stands in for Spack's concrete spec."""

    def __init__(self, spec: Spec, prefixes: Mapping[str, str]) -> None:
        self._spec = spec
        self._prefixes = prefixes
        self.version = spec.versions
        self.variants = {
            name: types.SimpleNamespace(value=sorted(value))
            for name, value in spec.variants.items()
            if not isinstance(value, bool)
        }

    def satisfies(self, condition: str) -> bool:
        return self._spec.satisfies(specs.parse_once(condition))

    __contains__ = satisfies

    def __getitem__(self, name: str) -> types.SimpleNamespace:
        prefix = _Prefix(self._prefixes[name])
        return types.SimpleNamespace(
            prefix=prefix,
            command=types.SimpleNamespace(path=str(prefix)),
            libs=[str(prefix / f"lib{name}.so")],
            package=types.SimpleNamespace(component_prefix=prefix),
        )


class _Prefix(type(pathlib.Path())):
    """Stands in for Spack's prefix: a path with its directories as attributes."""

    @property
    def include(self) -> pathlib.Path:
        return self / "include"


@contextlib.contextmanager
def _stand_ins(recorder: _Recorder) -> Iterator[None]:
    api = types.ModuleType("spack.package")
    for name in ("version", "variant", "depends_on", "conflicts", "requires", "patch"):
        setattr(api, name, recorder.directive(name))
    for name in ("license", "maintainers", "extends", "provides", "resource"):
        setattr(api, name, lambda *_, **__: None)
    api.when = recorder.when
    api.default_args = recorder.default_args
    api.EnvironmentModifications = Variables
    api.join_path = os.path.join
    api.run_after = lambda *_, **__: lambda function: function
    modules = {
        "spack": types.ModuleType("spack"),
        "spack.package": api,
    }
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
