"""The page of benchmarks/, and what its results are made of."""

import pytest

from benchmarks import collectives, page, spack
from hvd.model import specs


def test_the_page_and_its_pictures_are_up_to_date():
    assert page.write(check=True) == []


def test_patches_that_make_builds_faster_can_be_taken_back(py_horovod, horovod_tree, tmp_path):
    tree = horovod_tree("0.28.1", "+mpi+gloo frameworks=pytorch,tensorflow")
    spec = specs.parse("py-horovod@0.28.1 +mpi+gloo frameworks=pytorch,tensorflow")
    spack.take_back(py_horovod.patches(spec), tree, tmp_path / "log")
    assert (tmp_path / "log").read_text().count("$ git apply") == len(spack.FASTER)


def test_rounds_count_together():
    what = {"operation": "alltoall", "dtype": "float16", "bytes": 4}
    rounds = [[{**what, "seconds": [3.0, 2.0]}, {**what, "bytes": 8, "seconds": [4.0, 4.0]}]]
    row, other = collectives.rows({"ranks": 4}, [*rounds, [{**what, "seconds": [2.5]}]])
    assert (row["calls"], row["minimum"], row["median"], row["maximum"]) == (3, 2.0, 2.5, 3.0)
    assert row["bus"] == pytest.approx(3 / 4 * 4 / 2.5) and other["bytes"] == 8


def test_the_worst_row_counts_for_a_goal():
    mpi = {"operation": "allreduce", "method": "horovod", "ranks": 2}
    times = {4: (2.0, 1.0), 8: (9.0, 3.0), 16: (8.0, 1.0)}
    rows = [{**mpi, "bytes": size, "median": ours} for size, (ours, _) in times.items()]
    rows += [{**mpi, "method": "peer", "bytes": s, "median": t} for s, (_, t) in times.items()]
    goal = {"part": "collectives", "of": {**mpi, "bytes": [4, 8]}, "to": {"method": "peer"}}
    assert page.measured(goal, {"collectives": {"rows": rows}}) == 3.0
