"""A solution: the concrete specs of a lock file that Spack wrote."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Dict, List, Mapping

from hvd.core.errors import HvdError
from hvd.model.specs import Spec


@dataclasses.dataclass
class DagNode:
    """A node of the concretized DAG, or a distribution of a pip environment.

    Args:
        variants: the variants as Spack prints them; may be empty.
        hash: DAG hash; empty for the pip engine.
        external: Spack took it from the machine and did not build it.
        prefix: where it is installed; empty where that is not known.
        depends_on: names of its direct dependencies; ``name/hash`` where several nodes bear
            that name.
        architecture: ``platform-os-target``; may be empty.
    """

    name: str
    version: str
    variants: str = ""
    hash: str = ""
    external: bool = False
    prefix: str = ""
    depends_on: List[str] = dataclasses.field(default_factory=list)
    architecture: str = ""


#: One variant or flag of those that :func:`variants` prints.
WORD = re.compile(r"[+~][\w-]+|[\w-]+=\S+")


def read(text: str, name: str) -> Dict[str, Any]:
    """The concrete specs in the lock file ``text``, by their whole hash.

    Args:
        name: the file's, for the error.
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


def target(spec: Mapping[str, Any]) -> str:
    """Return the processor that ``spec`` is for, as archspec names it."""
    found = spec["arch"]["target"]
    return found["name"] if isinstance(found, dict) else found


def spec(node: Mapping[str, Any]) -> Spec:
    """Return name, version and variants of a concrete spec of a lock file."""
    values = {
        name: value
        if isinstance(value, bool)
        else frozenset(value if isinstance(value, list) else [value])
        for name, value in node["parameters"].items()
    }
    return Spec(node["name"], node["version"], values)


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
