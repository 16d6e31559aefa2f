"""Read a Spack recipe where there is no Spack.

The pip engine builds from the same ``package.py`` as Spack does: its versions and checksums,
defaults, conflicts, patches and build environment stand there and nowhere else.
"""

from __future__ import annotations

import dataclasses
import pathlib
import types
from typing import Collection, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from hvd.core.errors import HvdError
from hvd.core.paths import PACKAGES, shorten
from hvd.model import package_api, specs
from hvd.model.package_api import Directive
from hvd.model.specs import Spec


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

    def complete(self, spec: Spec) -> Spec:
        """``spec`` with a value for every variant that it has.

        As in Spack, a variant that is named brings the condition that it has: ``+nccl`` brings
        ``+cuda``.  The others have their defaults; a condition counts only if what it asks for
        is declared above it.
        """
        full = dataclasses.replace(spec, variants=dict(spec.variants))
        for name in spec.variants:
            known = self._definitions(name)
            if known and not any(directive.applies(full) for directive in known):
                conditions = [
                    variants
                    for variants in map(_conditions, known)
                    if all(full.variants.get(k, value) == value for k, value in variants.items())
                ]
                if conditions:
                    # of several, the one that most is said of
                    full.variants.update(
                        max(conditions, key=lambda each: len(each.keys() & spec.variants.keys()))
                    )
        for directive in self.named("variant"):
            name = directive.arguments[0]
            if name not in full.variants and directive.applies(full):
                default = directive.keywords["default"]
                if not isinstance(default, bool):
                    default = frozenset(str(default).split(","))
                full.variants[name] = default
        return full

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
        package.spec = package_api.ConcreteSpec(spec, prefixes)
        self.module.make_jobs = jobs if package.parallel else 1
        variables = package_api.Variables()
        package.setup_build_environment(variables)
        return variables

    def patches(self, spec: Spec) -> List[pathlib.Path]:
        """The patch files for ``spec``, in order."""
        return [self.directory / d.arguments[0] for d in self.named("patch") if d.applies(spec)]

    def refuse(self, spec: Spec, configured: Collection[str] = ()) -> Optional[HvdError]:
        """Refuse what no solver can make of ``spec``, as far as the directives alone know it.

        Args:
            spec: as a person writes it: what it leaves open has its default, of its versions
                the newest that can be is taken, and dependencies that it does not name are right.
            configured: variants that a configuration may give another default.

        Returns:
            The message on the newest version, where the recipe takes only an older one.

        Raises:
            HvdError: with the recipe's own message on the newest version that was asked for.
        """
        errors = []
        for version in self.versions():
            if spec.versions and not specs.version_in(version, spec.versions):
                continue
            full = self.complete(dataclasses.replace(spec, versions=version))
            for name in set(configured) - set(spec.variants):
                full.variants.pop(name, None)
            try:
                self.check(full, partly=True)
            except HvdError as error:
                errors.append(error)
            else:
                return errors[0] if errors else None
        if errors:
            raise errors[0]
        raise HvdError(
            f"the recipe has no {spec.name}@{spec.versions}",
            f"it has {', '.join(self.versions())}",
        )

    def check(self, spec: Spec, partly: bool = False) -> None:
        """Refuse ``spec`` where the recipe does.

        Args:
            partly: it may have more dependencies than it names.

        Raises:
            HvdError: with the recipe's own message.
        """
        for name in spec.variants:
            self._require_variant(spec, name)
        beyond = [*spec.unread, *(name for name in spec.variants if not self._knows(name))]
        if beyond and not partly:
            raise HvdError(
                f"only Spack understands '{beyond[0]}' in a spec of {spec.name}",
                "build it with --engine spack",
            )
        messages, remedy = [], ""
        for directive in self.refusals(spec):
            if partly and directive.name == "requires" and _missing(directive, spec):
                continue
            if "msg" in directive.keywords:
                messages.append(str(directive.keywords["msg"]))
                continue
            wanted = specs.parse(directive.arguments[0])
            messages.append(f"depends on {wanted}, but there is {spec.dependencies[wanted.name]}")
            remedy = "take another version of either; see packages/py_horovod/package.py"
        if messages:
            name = f"{spec.name}@{spec.versions}"
            raise HvdError(f"{name}: " + "\n  ".join(dict.fromkeys(messages)), remedy)

    def dependencies(self, spec: Spec) -> Set[str]:
        """The packages, virtual ones among them, that ``spec`` depends on."""
        full = self.complete(spec)
        found = [each for each in self.named("depends_on") if each.applies(full)]
        return {specs.parse_once(directive.arguments[0]).name for directive in found}

    def using(self, spec: Spec, have: Mapping[str, Spec], mpi: str = "") -> Spec:
        """``spec`` with those of the packages in ``have`` that it depends on.

        Args:
            mpi: which of them is an MPI.
        """
        wanted = self.dependencies(spec)
        taken = {
            name: each
            for name, each in have.items()
            if name in wanted or (name == mpi and "mpi" in wanted)
        }
        return dataclasses.replace(spec, dependencies={**taken, **spec.dependencies})

    def _knows(self, name: str) -> bool:
        return name in ("os", "target") or bool(self._definitions(name))

    def _require_variant(self, spec: Spec, name: str) -> None:
        """Refuse a variant of a condition that ``spec`` does not meet."""
        known = self._definitions(name)
        if known and not any(directive.applies(spec) for directive in known):
            conditions = " or ".join(" ".join(directive.when) for directive in known)
            raise HvdError(
                f"{spec.name} has the variant '{name}' only with {conditions}",
                f"say that too, or leave '{name}' out",
            )

    def refusals(self, spec: Spec) -> Iterator[Directive]:
        """The conflicts, requirements and dependencies that ``spec`` does not meet."""
        for directive in self.directives:
            if not directive.applies(spec):
                continue
            if directive.name == "conflicts":
                refused = spec.satisfies(specs.parse_once(directive.arguments[0]))
            elif directive.name == "requires":
                refused = not _required(directive, spec)
            elif directive.name == "depends_on":
                wanted = specs.parse_once(directive.arguments[0])
                have = spec.dependencies.get(wanted.name)
                refused = have is not None and not have.intersects(wanted)
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
    return Recipe(name, directory, *package_api.read(path))


def _missing(directive: Directive, spec: Spec) -> bool:
    """Return whether a requirement asks for a dependency that ``spec`` does not name."""
    asked = [specs.parse_once(text).dependencies for text in directive.arguments]
    return any(each and not each.keys() & spec.dependencies.keys() for each in asked)


def _conditions(directive: Directive) -> Dict[str, specs.Value]:
    """The variants that ``directive`` asks for."""
    return {
        k: v
        for condition in directive.when
        for k, v in specs.parse_once(condition).variants.items()
    }


def _required(directive: Directive, spec: Spec) -> bool:
    met = [spec.satisfies(specs.parse_once(text)) for text in directive.arguments]
    if directive.keywords.get("policy", "one_of") == "any_of":
        return any(met)
    return sum(met) == 1
