"""The record of a build, its parts, and the commits it was made from."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from hvd.core import paths
from hvd.fetch import clone, python_index
from hvd.host import externals
from hvd.model import built
from hvd.model.built import Built
from hvd.model.environment import Environment
from hvd.model.specs import Spec


@dataclasses.dataclass(frozen=True)
class Component:
    """A piece of software that a build consists of, or was made with."""

    name: str  # the package, as the engine calls it
    version: str
    key: str  # unique: Spack's hash, or the name
    distribution: str = ""  # its name on a Python index
    url: str = ""  # of its source; empty where it was not built
    sha256: str = ""  # of its source
    commit: str = ""  # of its source
    licence: str = ""  # an SPDX expression
    prefix: str = ""
    external: bool = False  # the machine or the site has it; it was not built
    runs: bool = True  # it is there when the environment runs, not only when it is built
    needs: Tuple[str, ...] = ()  # keys of its dependencies
    patches: Tuple[pathlib.Path, ...] = ()  # files that were applied to it
    bom: str = ""  # the bill of materials that Spack wrote


def record(
    environment: Environment, engine: str, spec: Spec, versions: Mapping[str, str], **more: Any
) -> Built:
    """Return the record of a build of ``spec``, a concrete Horovod.

    Args:
        versions: those of the packages that it may run with, by Spack's name.
        more: the fields that the variants do not say.
    """
    controllers = spec.on("gloo", "mpi")
    packages = {
        name: externals.PACKAGES.get(name, f"py-{name}") for name in spec.values("frameworks")
    }
    return Built(
        environment=environment.name,
        engine=engine,
        version=spec.versions,
        frameworks={name: versions.get(each, "") for name, each in packages.items()},
        controllers=tuple(controllers),
        operations=tuple(sorted([*controllers, *spec.on("ccl", "ddl", "nccl")])),
        # RCCL, which has no such variant, is shared
        nccl_link="".join(spec.values("nccl_link") or ["shared"] * bool(spec.on("nccl"))),
        gpu="".join(spec.on("cuda", "rocm")),
        architectures=spec.values("cuda_arch") or spec.values("amdgpu_target"),
        gpu_mpi="mpi" in spec.values("gpu_ops"),
        inputs=built.inputs(environment, engine),
        digest=built.digest(environment, engine),
        **more,
    )


def file(environment: str, engine: str) -> pathlib.Path:
    """The file of the bill of materials of a build, beside the record of the build."""
    return paths.state() / "built" / f"{paths.key(environment, engine)}.cdx.json"


def commits(tools: Mapping[str, str]) -> Dict[str, str]:
    """``tools``, name to commit, and this repository: with ``+`` where it has changes."""
    found = {name: commit for name, commit in tools.items() if commit}
    own = clone.commit(paths.ROOT)
    if own:
        found["hvd"] = own + ("+" if clone.git("status", "--porcelain").stdout.strip() else "")
    return found


def of_solution(specs: Mapping[str, Any], facts: Sequence[Dict[str, Any]]) -> List[Component]:
    """The parts of a build of Spack's.

    Args:
        specs: the concrete specs by hash.
        facts: what ``hvd.solve.queries.built`` printed.
    """
    known = {each.pop("hash"): each for each in map(dict, facts)}
    ours = {python_index.digest(path): path for path in paths.PACKAGES.glob("*/patches/*.patch")}
    found = []
    for key, spec in specs.items():
        external = "external" in spec
        taken = external and spec["name"].startswith("py-")
        part = Component(
            name=spec["name"],
            version=spec["version"],
            key=key,
            distribution=spec["name"][3:] if taken else "",
            external=external,
            needs=tuple(edge["hash"] for edge in spec.get("dependencies", [])),
            patches=tuple(ours[each] for each in spec.get("patches", []) if each in ours),
            **known[key],
        )
        found.append(part)
    return found


def of_distributions(root: Component, found: Mapping[str, Any]) -> List[Component]:
    """The parts of a build of pip's: Horovod, ``root``, and all that its interpreter has."""
    python = found["python"]
    base = Component("python", python["version"], "python", prefix=python["prefix"], external=True)
    others = [
        Component(name, each["version"], name, name, prefix=each["prefix"], external=True)
        for name, each in found["distributions"].items()
        if name != root.distribution
    ]
    needs = tuple(part.key for part in (base, *others))
    return [dataclasses.replace(root, needs=needs), base, *others]
