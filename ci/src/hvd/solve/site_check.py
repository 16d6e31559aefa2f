"""Check the solution of a site's environment against what the site has.

Spack takes any external that satisfies what is asked for, also one that the user's own
configuration declares, or that was found on the machine that solves.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any, Dict, List, Mapping, Set, Tuple

import yaml

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.model import site as sites
from hvd.model import solution
from hvd.model.environment import HOROVOD, Environment
from hvd.model.specs import Spec

#: Version, prefix and modules of an external.
External = Tuple[str, str, Tuple[str, ...]]

#: What Spack takes from the machine by itself where it can ask a compiler.
_LIBC = ("glibc", "musl")

_VERSION = re.compile(r"[\w.-]+@=?([\w.-]+)")
_ARCHITECTURE = re.compile(r"\b(os|target)=(\S+)")


def file(site: str) -> pathlib.Path:
    """Return the ``packages.yaml`` of ``site``."""
    return sites.file(site).with_name("packages.yaml")


def externals(path: pathlib.Path) -> Dict[str, List[External]]:
    """The externals that the ``packages.yaml`` at ``path`` declares, by package."""
    packages = yaml.safe_load(path.read_text())["packages"]
    return {
        # gcc:: in the file is gcc: to a reader that does not know Spack's way to override
        name.rstrip(":"): [_external(each) for each in entry["externals"]]
        for name, entry in packages.items()
        if "externals" in entry
    }


def modules(machine: sites.Site) -> Set[str]:
    """Every module that ``machine``'s externals or its environments load."""
    found = {
        module
        for entries in externals(file(machine.name)).values()
        for _, _, modules in entries
        for module in modules
    }
    loads = [load for use in machine.environments.values() for load in (*use.build, *use.run)]
    return found.union(*loads)


def architecture(root: str) -> Dict[str, str]:
    """``os`` and ``target`` of a root spec."""
    return dict(_ARCHITECTURE.findall(root))


def require(environment: Environment, specs: Mapping[str, Dict[str, Any]]) -> None:
    """Refuse a solution that is not the site's; arguments as for :func:`problems`."""
    found = problems(environment, specs)
    if found:
        raise HvdError(
            "\n  ".join([f"{environment.name} does not match its site:", *found]),
            "fix that key; `spack -e ... config blame packages` shows which file says what",
        )


def problems(environment: Environment, specs: Mapping[str, Dict[str, Any]]) -> List[str]:
    """The faults of a solution, each with the file and the key to look at.

    Args:
        environment: that of a site.
        specs: its concrete specs by hash.
    """
    wanted = architecture(environment.specs[0])
    provided = externals(file(environment.site))
    if environment.externals.exists():
        provided.update(externals(environment.externals))
    shown = paths.shorten(file(environment.site))
    found: List[str] = []
    for node in specs.values():
        name = f"{node['name']}@{node['version']}"
        has = {"os": node["arch"]["platform_os"], "target": solution.target(node)}
        found += [
            f"{name} is for {key}={has[key]}, not {wanted[key]}: key 'specs' of "
            f"{paths.shorten(environment.directory / 'spack.yaml')}"
            for key in wanted
            if has[key] != wanted[key]
        ]
        here = f"key 'packages:{node['name']}:externals' of {shown}"
        if "external" not in node:
            if node["name"] in provided:
                found.append(f"{name} is to be built, though the site has it: {here}")
        elif node["name"] not in _LIBC and not any(
            _is(node, each) for each in provided.get(node["name"], [])
        ):
            prefix = node["external"].get("path") or "no prefix"
            found.append(f"{name} at {prefix} is not the site's: {here}")
    return found + _variants(environment.root, specs)


def require_here(environment: Environment, specs: Mapping[str, Dict[str, Any]]) -> None:
    """Say what of its site the environment takes and this machine lacks.

    Spack's word for it is a traceback: "cannot locate the 'python' command in ...".
    """
    taken = {
        f"{spec['name']}@{spec['version']}": spec["external"].get("path") or ""
        for spec in specs.values()
        # compilers are found by their programs, wherever their prefix is
        if environment.site and "external" in spec and spec["name"] != "gcc"
    }
    absent = {name: place for name, place in taken.items() if not pathlib.Path(place).exists()}
    if not absent:
        return
    page = f"docs/sites/{environment.site}.md"
    python = next(name for name in taken if name.startswith("python@"))
    if set(absent.values()) == {taken[python]}:
        raise HvdError(
            f"{environment.name} takes {python} from {taken[python]}, which is not there",
            f"make it as {page} says, and then: ./hvd externals {environment.name} "
            f"--python {taken[python]}/bin/python",
        )
    name, place = next(iter(absent.items()))
    raise HvdError(
        f"{environment.name} takes {name} from {place}, which this machine lacks",
        f"build it on {environment.site}, as {page} says; here, with stand-ins: "
        f"./hvd test tests/rehearsal --require rehearsal -k {environment.name}",
    )


def _variants(root: Spec, specs: Mapping[str, Dict[str, Any]]) -> List[str]:
    """Variants of Horovod that are not as asked for."""
    (node,) = (node for node in specs.values() if node["name"] == HOROVOD)
    has = solution.spec(node).variants
    return [
        f"{HOROVOD} has {variant}={node['parameters'][variant]}, and not what is asked for"
        for variant, value in root.variants.items()
        if variant in has and has[variant] != value
    ]


def _external(entry: Dict[str, Any]) -> External:
    match = _VERSION.match(entry["spec"])
    version = match[1] if match else ""
    return version, entry.get("prefix", ""), tuple(entry.get("modules", ()))


def _is(node: Dict[str, Any], external: External) -> bool:
    """Say whether the concrete ``node`` is ``external``; modules may tell Spack the prefix."""
    version, prefix, modules = external
    taken = node["external"]
    return (
        node["version"] == version
        and tuple(taken.get("module") or ()) == modules
        and (not prefix or taken.get("path") == prefix)
    )
