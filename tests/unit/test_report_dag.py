"""The DAG as a tree."""

from __future__ import annotations

from hvd.model.solution import DagNode
from hvd.report.dag import tree


def test_the_tree_shows_every_node_once_below_its_dependent():
    nodes = [
        DagNode("py-horovod", "0.28.1", "+mpi", "aaaaaaa", depends_on=["openmpi", "python"]),
        DagNode("openmpi", "4.1.8", "", "bbbbbbb", True, "/usr", ["glibc"], "linux-old"),
        DagNode("python", "3.11.7", "", "ccccccc", depends_on=["glibc"], architecture="linux"),
        DagNode("glibc", "2.36", "", "ddddddd", architecture="linux"),
    ]
    assert tree(nodes) == [
        "     aaaaaaa  py-horovod@0.28.1 +mpi",
        "[e]  bbbbbbb      ^openmpi@4.1.8 arch=linux-old (/usr)",
        "     ddddddd          ^glibc@2.36",
        "     ccccccc      ^python@3.11.7",
    ]


def test_nodes_of_one_name_are_told_apart_by_hash():
    twins = [DagNode("py-wheel", v, hash=f"{v}xxxxxx") for v in ("1", "2")]
    told = tree([DagNode("a", "1", depends_on=["py-wheel/2xxxxxx"]), *twins])
    assert [line.strip() for line in told] == [
        "a@1",
        "2xxxxxx      ^py-wheel@2",
        "1xxxxxx  py-wheel@1",
    ]
