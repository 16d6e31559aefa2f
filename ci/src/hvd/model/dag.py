"""A node of a solution, whichever engine made it."""

from __future__ import annotations

import dataclasses
from typing import List


@dataclasses.dataclass
class DagNode:
    """A node of the concretized DAG, or a distribution of a pip environment.

    Args:
        name: package name.
        version: version.
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
