"""The concretized DAG as an indented tree, in the manner of `spack spec`."""

from __future__ import annotations

import collections
from typing import Dict, List, Sequence, Set

from hvd.model.dag import DagNode

_HASH = 7  # characters of a hash that Spack prints


def tree(nodes: Sequence[DagNode]) -> List[str]:
    """The lines of the tree: ``[e]`` for an external, hash, and the node below its dependent.

    Every node stands once, where a walk in depth first reaches it first, as in `spack spec`.
    """
    return _Tree(nodes).lines


class _Tree:
    def __init__(self, nodes: Sequence[DagNode]) -> None:
        self.lines: List[str] = []
        self._by_name: Dict[str, List[DagNode]] = collections.defaultdict(list)
        for node in nodes:
            self._by_name[node.name].append(node)
        self._shown: Set[int] = set()
        self._hash_width = max((len(node.hash[:_HASH]) for node in nodes), default=0)
        self._common = _common_architecture(nodes)
        wanted = {id(each) for node in nodes for each in self._dependencies(node)}
        roots = [node for node in nodes if id(node) not in wanted]
        # The nodes themselves come last: what no root leads to must not be left out.
        for node in [*roots, *nodes]:
            if id(node) not in self._shown:
                self._add(node, 0)

    def _dependencies(self, node: DagNode) -> List[DagNode]:
        found = (self._find(name) for name in node.depends_on)
        return [each[0] for each in found if len(each) == 1]

    def _find(self, name: str) -> List[DagNode]:
        """The nodes that ``name`` or ``name/hash`` may stand for."""
        name, _, hash_ = name.partition("/")
        return [
            node
            for node in self._by_name.get(name, [])
            if not hash_ or node.hash[:_HASH] == hash_[:_HASH]
        ]

    def _add(self, node: DagNode, depth: int) -> None:
        self._shown.add(id(node))
        words = [f"{node.name}@{node.version}" if node.version else node.name, node.variants]
        if node.architecture and node.architecture != self._common:
            words.append(f"arch={node.architecture}")
        if node.external and node.prefix:
            words.append(f"({node.prefix})")
        mark = "[e]" if node.external else ""
        self._line(mark, node.hash[:_HASH], depth, " ".join(word for word in words if word))
        for name in node.depends_on:
            candidates = self._find(name)
            if len(candidates) == 1:
                if id(candidates[0]) not in self._shown:
                    self._add(candidates[0], depth + 1)
            else:
                remark = f"one of {len(candidates)}" if candidates else "nothing known of it"
                self._line("", "", depth + 1, f"{name} ({remark})")

    def _line(self, mark: str, hash_: str, depth: int, text: str) -> None:
        columns = [f"{mark:3}"] + ([f"{hash_:{self._hash_width}}"] if self._hash_width else [])
        caret = "^" if depth else ""
        self.lines.append("  ".join([*columns, "    " * depth + caret + text]).rstrip())


def architectures(nodes: Sequence[DagNode]) -> List[str]:
    """The architectures that occur, the most frequent one first."""
    counter = collections.Counter(node.architecture for node in nodes if node.architecture)
    return [name for name, _ in sorted(counter.items(), key=lambda item: (-item[1], item[0]))]


def _common_architecture(nodes: Sequence[DagNode]) -> str:
    return next(iter(architectures(nodes)), "")
