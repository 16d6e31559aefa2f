"""The software that a site's files declare, as far as an environment uses it."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import yaml

from hvd.core.errors import HvdError
from hvd.core.paths import shorten
from hvd.model import site as sites
from hvd.model import specs
from hvd.model.environment import Environment
from hvd.model.site import Use
from hvd.solve import kept, site_check

#: Where that lies whose prefix is the site's secret.
STAND_INS = "/hvd-stand-ins"
#: A package to what directories call it, where that is not the package's name.
_CALLED = {"cray-mpich": "mpich", "py-torch": "pytorch", "py-tensorflow": "tensorflow"}


@dataclasses.dataclass(frozen=True)
class Declared:
    """An external of a site; ``prefix`` is a stand-in's own where only modules tell it."""

    package: str
    version: str
    prefix: str
    modules: Tuple[str, ...] = ()
    programs: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.package}@{self.version}"

    @property
    def module(self) -> str:
        """The module that brings it; those before it make that one visible."""
        return self.modules[-1] if self.modules else ""


def read(environment: Environment) -> List[Declared]:
    """Return the externals that the environment uses, by its kept solution.

    Raises:
        HvdError: they contradict each other.
    """
    file = site_check.file(environment.site)
    packages = yaml.safe_load(file.read_text())["packages"]
    found = [
        _declared(name.rstrip(":"), entry)
        for name, section in packages.items()
        for entry in section.get("externals", ())
    ]
    found = list(_used(environment, found))
    use = sites.of(environment.name).environments[environment.name]
    for key, problem in _faults(found, use):
        raise HvdError(f"{shorten(file)}: key 'packages:{key}': {problem}", "correct it")
    return found


def _declared(package: str, entry: Mapping[str, Any]) -> Declared:
    version = specs.parse(entry["spec"], strict=False).versions
    return Declared(
        package,
        version,
        entry.get("prefix") or f"{STAND_INS}/{package}-{version}",
        tuple(entry.get("modules", ())),
        entry.get("extra_attributes", {}).get("compilers", {}),
    )


def _used(environment: Environment, found: List[Declared]) -> Iterator[Declared]:
    """Yield those of ``found`` that are in the kept solution; all, where nothing is kept."""
    if not (environment.directory / "dag.json").exists():
        yield from found
        return
    origins = {each.name: each.origin for each in kept.load(environment).packages}
    for each in found:
        same = [other for other in found if other.package == each.package]
        at = [other for other in same if origins.get(each.package, "").startswith(other.prefix)]
        if each.package in origins and each in (at or same):
            yield each


def _faults(found: List[Declared], use: Use) -> Iterator[Tuple[str, str]]:
    """Yield each contradiction: the key and the problem."""
    loaded: Dict[str, set] = {}
    for load in (*use.build, *use.run):
        for module in load:
            loaded.setdefault(module.partition("/")[0], set()).add(module)
    for each in found:
        named = _named(each)
        if named and not _agrees(named, each.version):
            yield each.package, f"{each.prefix} is the prefix of {named}, not of {each.version}"
        for module in each.modules:
            others = loaded.get(module.partition("/")[0], {module})
            if module not in others:
                shown = ", ".join(sorted(others))
                yield each.package, f"module {module}, while site.yaml loads {shown}"
        for program in each.programs.values():
            if not _belongs(program, each.prefix):
                yield each.package, f"{program} is not below {each.prefix}"


def _named(each: Declared) -> str:
    """Return the version that its prefix names; empty if none."""
    name = re.escape(_CALLED.get(each.package, each.package))
    # the last one: a directory may be of the compiler that built what is below it
    found = re.findall(rf"/{name}[/-]v?(\d+(?:\.\d+)+)", each.prefix, re.IGNORECASE)
    return found[-1] if found and not each.prefix.startswith(STAND_INS) else ""


def _agrees(one: str, other: str) -> bool:
    """Return whether one version is the other, or a series that it is in."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _belongs(program: str, prefix: str) -> bool:
    """Return whether a compiler's program can be of the installation at ``prefix``.

    A package of the system has the prefix /usr, whatever directory names the program; Cray has
    GCC in PREFIX/snos, and links to its programs in PREFIX/bin.
    """
    directory = pathlib.PurePath(program).parent
    root = pathlib.PurePath(prefix)
    return (
        prefix == "/usr"
        or directory == root / "bin"
        or (root.name == "snos" and directory == root.parent / "bin")
    )
