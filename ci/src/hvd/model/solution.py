"""A solution: the concrete specs of a lock file that Spack wrote."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping

from hvd.core.errors import HvdError
from hvd.model.dag import DagNode

#: Virtual packages of compilers.
_LANGUAGES = ("c", "cxx", "fortran")
#: One variant or flag of those that :func:`variants` prints.
WORD = re.compile(r"[+~][\w-]+|[\w-]+=\S+")


def read(text: str, name: str) -> Dict[str, Any]:
    """The concrete specs in the lock file ``text``, by their whole hash.

    Args:
        name: the file's, for the error.

    Raises:
        HvdError: it is no lock file.
    """
    try:
        specs = json.loads(text)["concrete_specs"]
        for spec in specs.values():
            spec["name"], spec["version"], spec["parameters"], spec["arch"]
        return specs
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HvdError(
            f"{name} is no lock file of Spack: {error}", "make one with ./hvd concretize"
        ) from error


def nodes(specs: Mapping[str, Any]) -> List[DagNode]:
    """The concrete ``specs``, by hash, as nodes of a DAG."""
    names = [spec["name"] for spec in specs.values()]

    def name_of(edge: Mapping[str, Any]) -> str:
        one = names.count(edge["name"]) == 1
        return edge["name"] if one else f"{edge['name']}/{edge['hash'][:7]}"

    return [
        DagNode(
            name=spec["name"],
            version=spec["version"],
            variants=variants(spec["parameters"]),
            hash=hash_[:7],
            external="external" in spec,
            prefix=_place(spec.get("external") or {}),
            depends_on=[name_of(edge) for edge in spec.get("dependencies", [])],
            architecture=_architecture(spec),
        )
        for hash_, spec in specs.items()
    ]


def compiler(spec: Mapping[str, Any], specs: Mapping[str, Any]) -> str:
    """Return the compiler of ``spec``, such as ``gcc@12.2.0``; empty if nothing is compiled."""
    found = [
        f"{edge['name']}@{specs[edge['hash']]['version']}"
        for edge in spec.get("dependencies", [])
        if edge["hash"] in specs and set(_LANGUAGES) & set(edge["parameters"].get("virtuals", ()))
    ]
    return " ".join(dict.fromkeys(found))


def target(spec: Mapping[str, Any]) -> str:
    """Return the processor that ``spec`` is for, as archspec names it."""
    found = spec["arch"]["target"]
    return found["name"] if isinstance(found, dict) else found


def variants(parameters: Mapping[str, Any]) -> str:
    """A spec's variants and compiler flags as Spack prints them."""
    flags, pairs = [], []
    for key, value in sorted(parameters.items()):
        if isinstance(value, bool):
            flags.append(f"{'+' if value else '~'}{key}")
        elif value and key not in ("patches", "build_system"):
            pairs.append(f"{key}={','.join(value) if isinstance(value, list) else value}")
    return " ".join(filter(None, ["".join(flags), *pairs]))


def _place(external: Mapping[str, Any]) -> str:
    """Where an external is: its prefix and the modules that know it; empty for none."""
    modules = " ".join(external.get("module") or [])
    prefix = external.get("path") or ""
    return f"{prefix}, modules {modules}" if prefix and modules else prefix or modules


def _architecture(spec: Mapping[str, Any]) -> str:
    return "-".join([spec["arch"]["platform"], spec["arch"]["platform_os"], target(spec)])
