"""The concretized DAG as an indented tree, in the manner of `spack spec`."""

from __future__ import annotations

import collections
from typing import Dict, Iterator, List, Sequence

from hvd.model.solution import DagNode


def tree(nodes: Sequence[DagNode]) -> List[str]:
    """Return the lines of the tree: ``[e]`` for an external, the hash, and the node.

    A node is listed once, where a depth-first walk reaches it first, as in `spack spec`.
    """
    by_name: Dict[str, DagNode] = {}
    for node in nodes:
        by_name[node.name] = by_name[f"{node.name}/{node.hash}"] = node
    width = max((len(node.hash) for node in nodes), default=0)
    common = next(iter(architectures(nodes)), "")
    seen = set()

    def walk(node: DagNode, depth: int) -> Iterator[str]:
        if id(node) in seen:
            return
        seen.add(id(node))
        columns = ["[e]" if node.external else "   "]
        if width:
            columns.append(node.hash.ljust(width))
        columns.append("    " * depth + ("^" if depth else "") + _spec(node, common))
        yield "  ".join(columns)
        for name in node.depends_on:
            if name in by_name:
                yield from walk(by_name[name], depth + 1)

    needed = {id(by_name[name]) for node in nodes for name in node.depends_on if name in by_name}
    roots = [node for node in nodes if id(node) not in needed]
    return [line for root in roots for line in walk(root, 0)]


def _spec(node: DagNode, common: str) -> str:
    """Return the node as a spec; ``common`` is the architecture that is not repeated."""
    words = [f"{node.name}@{node.version}" if node.version else node.name, node.variants]
    if node.architecture and node.architecture != common:
        words.append(f"arch={node.architecture}")
    if node.external and node.prefix:
        words.append(f"({node.prefix})")
    return " ".join(filter(None, words))


def architectures(nodes: Sequence[DagNode]) -> List[str]:
    """Return the architectures that occur, the most frequent one first."""
    counter = collections.Counter(node.architecture for node in nodes if node.architecture)
    return sorted(counter, key=lambda name: (-counter[name], name))
