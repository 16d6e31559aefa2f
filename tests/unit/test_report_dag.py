"""The DAG as a tree."""

from __future__ import annotations

from hvd.model.dag import DagNode
from hvd.report.dag import tree


def test_the_tree_shows_every_node_once_below_its_dependent():
    nodes = [
        DagNode("py-horovod", "0.28.1", "+mpi", "aaaaaaaaaa", depends_on=["openmpi", "python"]),
        DagNode("openmpi", "4.1.8", "", "bbbbbbbbbb", True, "/usr", ["hwloc", "glibc"]),
        DagNode("python", "3.11.7", "", "cccccccccc", depends_on=["glibc"]),
        DagNode("glibc", "2.36", "", "dddddddddd"),
    ]
    assert tree(nodes) == [
        "     aaaaaaa  py-horovod@0.28.1 +mpi",
        "[e]  bbbbbbb      ^openmpi@4.1.8 (/usr)",
        "                      ^hwloc (nothing known of it)",
        "     ddddddd          ^glibc@2.36",
        "     ccccccc      ^python@3.11.7",
    ]


def test_nodes_of_one_name_are_told_apart_by_hash_or_not_guessed():
    twins = [DagNode("py-wheel", v, hash=f"{v}xxxxxxxx") for v in ("1", "2")]
    told = tree([DagNode("a", "1", depends_on=["py-wheel/2xxxxxxxx"]), *twins])
    assert [line.strip() for line in told] == [
        "a@1",
        "2xxxxxx      ^py-wheel@2",
        "1xxxxxx  py-wheel@1",
    ]
    guessed = tree([DagNode("a", "1", depends_on=["py-wheel"]), *twins])
    assert [line.strip() for line in guessed][1] == "^py-wheel (one of 2)"
    assert len(guessed) == 4


def test_a_cycle_ends():
    nodes = [DagNode("a", "1", depends_on=["b"]), DagNode("b", "1", depends_on=["a"])]
    assert [line.strip() for line in tree(nodes)] == ["a@1", "^b@1"]
