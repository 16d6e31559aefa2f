"""Read a Spack recipe where there is no Spack.

``package.py`` runs with stand-ins for the Package API, which record its directives.  The pip
engine takes versions, checksums, patches and the build environment from it, and `Recipe.accept`
answers in milliseconds what Spack would answer after a solve.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import os
import pathlib
import re
import sys
import types
from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, Optional, Set, Tuple

import archspec.cpu

from hvd.core.errors import HvdError, nearest
from hvd.core.paths import PACKAGES, shorten
from hvd.model import specs
from hvd.model.specs import Spec, parse_once

#: What looks like a variant and is none.
#: https://spack.readthedocs.io/en/latest/spec_syntax.html#architecture-specifiers
_OTHER_KEYS = frozenset(
    "arch platform os target cflags cxxflags cppflags fflags ldflags ldlibs build_system "
    "dev_path namespace patches commit".split()
)
#: Of these the pip engine makes something.
_ARCHITECTURE = ("os", "target")
#: How Spack spells a flag that is given as a value.
_FLAG_VALUES = frozenset({"true", "false", "True", "False"})
#: The values that CudaPackage and ROCmPackage of Spack's supported packages have together.
VALUES = {
    "cuda_arch": """
        10 11 12 13 20 21 30 32 35 37 50 52 53 60 61 62 70 72 75 80 86 87 89 90 90a
        100 100a 100f 101 101a 101f 103 103a 103f 110 110a 110f 120 120a 120f 121 121a 121f
    """.split(),
    "amdgpu_target": """
        gfx701 gfx801 gfx802 gfx803 gfx900 gfx900:xnack- gfx902 gfx904 gfx906 gfx906:xnack-
        gfx908 gfx908:xnack- gfx909 gfx90a gfx90a:xnack- gfx90a:xnack+ gfx90c
        gfx940 gfx941 gfx942 gfx950 gfx1010 gfx1011 gfx1012 gfx1013
        gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036
        gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
        gfx1200 gfx1201 gfx1250 gfx1251
    """.split(),
}


@dataclasses.dataclass(frozen=True)
class Directive:
    """One call of a directive: its arguments, and all conditions around it."""

    name: str
    arguments: Tuple[Any, ...]
    keywords: Mapping[str, Any]
    when: Tuple[str, ...]

    def applies(self, spec: Spec) -> bool:
        """Return whether ``spec`` meets every condition."""
        return all(spec.satisfies(parse_once(condition)) for condition in self.when)

    def refuses(self, spec: Spec) -> bool:
        """Return whether ``spec`` conflicts with this directive, which applies to it."""
        if self.name == "conflicts":
            return spec.satisfies(parse_once(self.arguments[0]))
        if self.name == "requires":
            met = [spec.satisfies(parse_once(text)) for text in self.arguments]
            return not any(met) if self.keywords.get("policy") == "any_of" else sum(met) != 1
        if self.name == "depends_on":
            wanted = parse_once(self.arguments[0])
            have = spec.dependencies.get(wanted.name)
            return have is not None and not have.intersects(wanted)
        return False


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A package's directives, and the module that they stand in."""

    name: str
    directory: pathlib.Path
    directives: Tuple[Directive, ...]
    module: types.ModuleType

    def named(self, name: str) -> List[Directive]:
        """All calls of the directive ``name``, in order."""
        return [directive for directive in self.directives if directive.name == name]

    def versions(self) -> Dict[str, str]:
        """Release to sha256, newest first; branches have none and are left out."""
        found = self.named("version")
        return {d.arguments[0]: d.keywords["sha256"] for d in found if "sha256" in d.keywords}

    def patches(self, spec: Spec) -> List[pathlib.Path]:
        """The patch files for ``spec``, in order."""
        return [self.directory / d.arguments[0] for d in self.named("patch") if d.applies(spec)]

    def dependencies(self, spec: Spec) -> Set[str]:
        """The packages, virtual ones among them, that ``spec`` depends on."""
        full = self.complete(spec)
        found = [each for each in self.named("depends_on") if each.applies(full)]
        return {parse_once(directive.arguments[0]).name for directive in found}

    def using(self, spec: Spec, have: Mapping[str, Spec], mpi: str = "") -> Spec:
        """``spec`` with those packages of ``have`` that it depends on; ``mpi`` names its MPI."""
        wanted = self.dependencies(spec)
        names = {name for name in have if name in wanted or (name == mpi and "mpi" in wanted)}
        taken = {name: have[name] for name in names}
        return dataclasses.replace(spec, dependencies={**taken, **spec.dependencies})

    def complete(self, spec: Spec) -> Spec:
        """``spec`` with a value for every variant that it has.

        As in Spack, a variant that is named brings the condition that it has: ``+nccl`` brings
        ``+cuda``.  The others have their defaults; a condition counts only if what it asks for
        is declared above it.
        """
        full = dataclasses.replace(spec, variants=dict(spec.variants))
        for name in spec.variants:
            known = self._definitions(name)
            conditions = [
                {
                    key: value
                    for text in each.when
                    for key, value in parse_once(text).variants.items()
                }
                for each in known
            ]
            possible = [
                each
                for each in conditions
                if all(full.variants.get(key, value) == value for key, value in each.items())
            ]
            if possible and not any(directive.applies(full) for directive in known):
                # prefer the condition that names most of the user's variants
                named = [len(each.keys() & spec.variants.keys()) for each in possible]
                full.variants.update(possible[named.index(max(named))])
        for directive in self.named("variant"):
            name = directive.arguments[0]
            if name not in full.variants and directive.applies(full):
                default = directive.keywords["default"]
                if not isinstance(default, bool):
                    default = frozenset(str(default).split(","))
                full.variants[name] = default
        return full

    def accept(
        self, spec: Spec, configured: Collection[str] = ()
    ) -> Tuple[Spec, Optional[HvdError]]:
        """Return ``spec`` on the newest version that the recipe accepts, with all variants.

        What ``spec`` leaves open has its default, and dependencies that it does not name are
        right.  The second result says why the newest version is not accepted; None if it is.

        Args:
            configured: variants that a configuration may give another default.
        """
        errors = []
        for version in self._fitting(spec):
            full = self.complete(dataclasses.replace(spec, versions=version))
            for name in set(configured) - set(spec.variants):
                full.variants.pop(name, None)
            try:
                self.check(full, partly=True)
            except HvdError as error:
                errors.append(error)
            else:
                return full, errors[0] if errors else None
        raise errors[0]

    def newest(self, spec: Spec) -> str:
        """The newest version in ``spec``."""
        return self._fitting(spec)[0]

    def _fitting(self, spec: Spec) -> List[str]:
        known = self.versions()
        found = [v for v in known if not spec.versions or specs.version_in(v, spec.versions)]
        if not found:
            raise HvdError(
                f"{spec.name} has no version {spec.versions}", f"use one of {', '.join(known)}"
            )
        return found

    def check(self, spec: Spec, partly: bool = False) -> None:
        """Refuse ``spec`` where the recipe does, with the recipe's own message.

        Args:
            partly: it may have more dependencies than it names.
        """
        for name, value in spec.variants.items():
            self._check_variant(spec, name, value)
        beyond = [*spec.unread, *(set(spec.variants) & _OTHER_KEYS - set(_ARCHITECTURE))]
        if beyond and not partly:
            raise HvdError(
                f"only Spack understands '{beyond[0]}' in a spec of {spec.name}",
                "build it with --engine spack",
            )
        messages, remedy = [], ""
        for directive in self.refusals(spec):
            if partly and directive.name == "requires" and self._is_open(directive, spec):
                continue
            if "msg" in directive.keywords:
                messages.append(str(directive.keywords["msg"]))
                continue
            wanted = parse_once(directive.arguments[0])
            messages.append(f"depends on {wanted}, but there is {spec.dependencies[wanted.name]}")
            remedy = "take another version of either; see packages/py_horovod/package.py"
        if messages:
            name = f"{spec.name}@{spec.versions}"
            raise HvdError(f"{name}: " + "\n  ".join(dict.fromkeys(messages)), remedy)

    def _is_open(self, requirement: Directive, spec: Spec) -> bool:
        """Return whether what ``spec`` leaves open may meet a ``requirement`` of dependencies."""
        named = spec.dependencies
        has_mpi = bool(self._mpis & named.keys())

        def may_be(wanted: Spec) -> bool:
            if wanted.name in named:
                return named[wanted.name].intersects(wanted)
            return not (has_mpi and wanted.name in self._mpis)

        asked = [parse_once(text).dependencies.values() for text in requirement.arguments]
        return any(each and all(map(may_be, each)) for each in asked)

    @functools.cached_property
    def _mpis(self) -> Set[str]:
        """The packages that the recipe names as MPIs."""
        clauses = [str(each.arguments) for each in self.directives if each.arguments]
        return set(re.findall(r"\^\[virtuals=mpi\] ([\w-]+)", " ".join(clauses)))

    def refusals(self, spec: Spec) -> Iterator[Directive]:
        """The conflicts, requirements and dependencies that ``spec`` does not meet."""
        # in this order, because few refuse
        return (each for each in self.directives if each.refuses(spec) and each.applies(spec))

    def _check_variant(self, spec: Spec, name: str, value: specs.Value) -> None:
        """Refuse an unknown variant or value, and a variant whose condition is not met."""
        known = self._definitions(name)
        if not known:
            if name == "target" and not isinstance(value, bool):
                ends = {end for each in value for end in each.split(":") if end}
                _check_values(spec, name, ends, archspec.cpu.TARGETS)
            if name in _OTHER_KEYS:
                return
            names = {each.arguments[0] for each in self.named("variant")}
            raise HvdError(f"{spec.name} has no variant '{name}'", nearest(name, names))
        if not any(directive.applies(spec) for directive in known):
            conditions = " or ".join(" ".join(directive.when) for directive in known)
            raise HvdError(
                f"{spec.name} has the variant '{name}' only with {conditions}",
                f"add that, or leave '{name}' out",
            )
        is_flag = isinstance(known[0].keywords["default"], bool)
        if is_flag and not isinstance(value, bool) and not value <= _FLAG_VALUES:
            raise HvdError(f"{spec.name}: {name} is on or off", f"use +{name} or ~{name}")
        if not is_flag and isinstance(value, bool):
            raise HvdError(f"{spec.name}: {name} needs a value", f"use {name}=<value>")
        choices = known[0].keywords.get("values", ())
        if choices and not is_flag:
            _check_values(spec, name, value, choices)

    def _definitions(self, variant: str) -> List[Directive]:
        return [each for each in self.named("variant") if each.arguments[0] == variant]

    def build_environment(
        self, spec: Spec, prefixes: Mapping[str, str], flags: str, jobs: int
    ) -> Dict[str, str]:
        """The variables that the recipe builds ``spec`` with.

        Args:
            spec: concrete, with all its variants.
            prefixes: by Spack's name of the package; of ``cmake``, the executable.
            flags: the compiler's for the target.
            jobs: parallel compile jobs.
        """
        self.module.microarchitecture_flags = lambda spec, language: flags
        package = getattr(self.module, self.name.title().replace("-", ""))()
        package.spec = ConcreteSpec(spec, prefixes)
        self.module.make_jobs = jobs if package.parallel else 1
        variables = Variables()
        package.setup_build_environment(variables)
        return variables


def load(name: str, packages: pathlib.Path = PACKAGES) -> Recipe:
    """Read the recipe of the Spack package ``name``."""
    directory = packages / name.replace("-", "_")
    path = directory / "package.py"
    if not path.is_file():
        raise HvdError(f"{shorten(path)}: no such recipe", "the pip engine builds py-horovod only")
    return Recipe(name, directory, *_execute(path))


def _check_values(spec: Spec, name: str, values: Set[str], choices: Collection[str]) -> None:
    """Refuse the first of ``values`` that is not one of ``choices``."""
    unknown = sorted(values.difference(choices))
    if unknown:
        raise HvdError(f"{spec.name} has no {name}={unknown[0]}", nearest(unknown[0], choices))


# Stand-ins for Spack's Package API


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
        return self._spec.satisfies(parse_once(condition))

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


class _Base:
    """Stands in for Spack's package classes."""

    #: Those with a letter; what the recipe says of the others comes from the packages it names.
    cuda_arch_values = tuple(value for value in VALUES["cuda_arch"] if not value.isdigit())
    amdgpu_targets: Tuple[str, ...] = ()

    def __init_subclass__(cls, **_) -> None:
        pass


class _Recorder:
    """Records the directives that a recipe calls."""

    def __init__(self) -> None:
        self.directives: List[Directive] = []
        self._conditions: List[str] = []

    def directive(self, name: str) -> Callable[..., None]:
        def record(*arguments: Any, **keywords: Any) -> None:
            condition = keywords.pop("when", None)
            when = (*self._conditions, *([condition] if condition else []))
            self.directives.append(Directive(name, arguments, keywords, when))

        return record

    @contextlib.contextmanager
    def when(self, condition: str) -> Iterator[None]:
        self._conditions.append(condition)
        try:
            yield
        finally:
            self._conditions.pop()


@functools.lru_cache(None)
def _execute(path: pathlib.Path) -> Tuple[Tuple[Directive, ...], types.ModuleType]:
    """Execute the recipe ``path``: its calls of directives, and its module."""
    recorder = _Recorder()
    for mixin, variable in (("cuda", "cuda_arch"), ("rocm", "amdgpu_target")):
        # what CudaPackage and ROCmPackage declare
        recorder.directive("variant")(mixin, default=False)
        values = ("none", *VALUES[variable])
        recorder.directive("variant")(variable, default="none", values=values, when=f"+{mixin}")
    hidden = {name: sys.modules.get(name) for name in _stand_ins(recorder)}
    sys.modules.update(_stand_ins(recorder))
    try:
        spec = importlib.util.spec_from_file_location("hvd_recipe", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        for name, before in hidden.items():
            if before is None:
                del sys.modules[name]
            else:
                sys.modules[name] = before
    return tuple(recorder.directives), module


def _stand_ins(recorder: _Recorder) -> Dict[str, types.ModuleType]:
    """The modules that a recipe imports."""
    api = types.ModuleType("spack.package")
    for name in ("version", "variant", "depends_on", "conflicts", "requires", "patch"):
        setattr(api, name, recorder.directive(name))
    for name in ("license", "maintainers", "extends", "provides", "resource"):
        setattr(api, name, lambda *_, **__: None)
    api.when = recorder.when
    # no default here (deptypes, deprecation) changes what the pip engine does
    api.default_args = lambda **_: contextlib.nullcontext()
    api.EnvironmentModifications = Variables
    api.join_path = os.path.join
    api.run_after = lambda *_, **__: lambda function: function
    builtin = "spack_repo.builtin"
    parents = ("spack", "spack_repo", builtin, f"{builtin}.build_systems")
    modules = {name: types.ModuleType(name) for name in parents}
    modules["spack.package"] = api
    for system in ("python", "cuda", "rocm", "generic"):
        module = types.ModuleType(f"{builtin}.build_systems.{system}")
        for name in ("PythonPackage", "CudaPackage", "ROCmPackage", "Package"):
            setattr(module, name, type(name, (_Base,), {}))
        modules[module.__name__] = module
    return modules
