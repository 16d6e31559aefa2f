"""The software that a site's files declare, as far as an environment uses it."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Dict, List, Mapping, Tuple

import yaml

from hvd.core.errors import HvdError
from hvd.core.paths import shorten
from hvd.model import site as sites
from hvd.model import specs
from hvd.model.environment import Environment
from hvd.solve import kept, site_check

#: The prefix of a stand-in where the site's files have modules alone.
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
    """Return the externals in the environment's kept solution, or all where nothing is kept.

    Raises:
        HvdError: they contradict each other, or what `site.yaml` loads.
    """
    file = site_check.file(environment.site)
    declared: List[Declared] = []
    for name, section in yaml.safe_load(file.read_text())["packages"].items():
        for entry in section.get("externals", ()):
            package = name.rstrip(":")
            version = specs.parse(entry["spec"], strict=False).versions
            prefix = entry.get("prefix") or f"{STAND_INS}/{package}-{version}"
            programs = entry.get("extra_attributes", {}).get("compilers", {})
            modules = tuple(entry.get("modules", ()))
            declared.append(Declared(package, version, prefix, modules, programs))
    found = declared
    if kept.file(environment).exists():
        origins = {each.name: each.origin for each in kept.load(environment).packages}
        found = []
        for each in declared:
            same = [other for other in declared if other.package == each.package]
            origin = origins.get(each.package, "")
            at = [other for other in same if origin.startswith(other.prefix)]
            if each.package in origins and each in (at or same):
                found.append(each)
    use = sites.of(environment.name).environments[environment.name]
    loaded: Dict[str, set] = {}
    for module in (module for load in (*use.build, *use.run) for module in load):
        loaded.setdefault(module.partition("/")[0], set()).add(module)
    for each in found:
        problem = _contradiction(each, loaded)
        if problem:
            raise HvdError(f"{shorten(file)}: key 'packages:{each.package}': {problem}")
    return found


def _contradiction(each: Declared, loaded: Mapping[str, set]) -> str:
    """Return what is wrong with an external; empty if nothing is."""
    # the last version in the prefix: a directory may be of the compiler that built what is below
    called = re.escape(_CALLED.get(each.package, each.package))
    named = re.findall(rf"/{called}[/-]v?(\d+(?:\.\d+)+)", each.prefix, re.IGNORECASE)
    if named and not each.prefix.startswith(STAND_INS):
        short, long = sorted((f"{named[-1]}.", f"{each.version}."), key=len)
        if not long.startswith(short):
            return f"{each.prefix} is the prefix of {named[-1]}, not of {each.version}"
    for module in each.modules:
        others = loaded.get(module.partition("/")[0], {module})
        if module not in others:
            return f"module {module}, but site.yaml loads {', '.join(sorted(others))}"
    root = pathlib.PurePath(each.prefix)
    # Cray has GCC in PREFIX/snos, and links to its programs in PREFIX/bin
    places = [root / "bin", *([root.parent / "bin"] if root.name == "snos" else [])]
    for program in each.programs.values():
        # /usr may have a compiler anywhere
        if each.prefix != "/usr" and pathlib.PurePath(program).parent not in places:
            return f"{program} is not below {each.prefix}"
    return ""
