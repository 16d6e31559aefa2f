"""What a build consists of, and the commits of what made it."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from hvd.core import paths
from hvd.fetch import clone, index

#: Run by ``spack python`` in the environment: where its packages come from.


@dataclasses.dataclass(frozen=True)
class Part:
    """A piece of software that a build consists of, or was made with.

    Args:
        name: package, as the engine calls it.
        version: its version.
        key: what tells it from all others: Spack's hash, or its name.
        distribution: its name on a Python index; empty where it is on none.
        url: address of its source; empty where it was not built.
        sha256: checksum of that.
        commit: git commit of its source.
        licence: an SPDX expression; empty where it is not known.
        prefix: where it is.
        external: the machine or the site has it; it was not built.
        runs: it is there when the environment runs, and not only when it is built.
        needs: keys of what it depends on.
        patches: files that were applied to it.
        bom: the bill of materials of Spack's own; empty where there is none.
    """

    name: str
    version: str
    key: str
    distribution: str = ""
    url: str = ""
    sha256: str = ""
    commit: str = ""
    licence: str = ""
    prefix: str = ""
    external: bool = False
    runs: bool = True
    needs: Tuple[str, ...] = ()
    patches: Tuple[pathlib.Path, ...] = ()
    bom: str = ""


def file(environment: str, engine: str) -> pathlib.Path:
    """Where the bill of materials of a build is: beside what is known of the build."""
    return paths.STATE / "built" / f"{paths.key(environment, engine)}.cdx.json"


def commits(tools: Mapping[str, str]) -> Dict[str, str]:
    """The commit of each of ``tools``, and of this repository with ``+`` where it has changes.

    Args:
        tools: name to commit.
    """
    found = {name: commit for name, commit in tools.items() if commit}
    own = clone.commit(paths.ROOT)
    if own:
        changed = subprocess.run(
            ["git", "-C", str(paths.ROOT), "status", "--porcelain"], capture_output=True, text=True
        )
        found["hvd"] = own + ("+" if changed.stdout.strip() else "")
    return found


def of_solution(specs: Mapping[str, Any], facts: Sequence[Dict[str, Any]]) -> List[Part]:
    """The parts of a build of Spack's.

    Args:
        specs: the concrete specs by hash.
        facts: what ``hvd.solve.queries.parts`` printed.
    """
    known = {each["hash"]: each for each in facts}
    ours = {index.digest(path): path for path in paths.PACKAGES.glob("*/*.patch")}
    found = []
    for key, spec in specs.items():
        more = {name: value for name, value in known[key].items() if name != "hash"}
        external = "external" in spec
        python = spec["name"].startswith("py-")
        part = Part(
            name=spec["name"],
            version=spec["version"],
            key=key,
            distribution=spec["name"][3:] if external and python else "",
            external=external,
            needs=tuple(edge["hash"] for edge in spec.get("dependencies", [])),
            patches=tuple(ours[each] for each in spec.get("patches", []) if each in ours),
            **more,
        )
        found.append(part)
    return found


def of_distributions(root: Part, found: Mapping[str, Any]) -> List[Part]:
    """The parts of a build of pip's: ``root``, and all that its interpreter has.

    Args:
        root: Horovod.
        found: what the interpreter has; see :func:`hvd.host.externals.ask`.
    """
    python = found["python"]
    base = Part("python", python["version"], "python", prefix=python["prefix"], external=True)
    others = [
        Part(name, each["version"], name, name, prefix=each["prefix"], external=True)
        for name, each in found["distributions"].items()
        if name != root.distribution
    ]
    needs = tuple(part.key for part in (base, *others))
    return [dataclasses.replace(root, needs=needs), base, *others]
