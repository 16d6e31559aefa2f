"""The results, the page and the pictures of `./hvd bench`."""

from __future__ import annotations

import json
import pathlib

import pytest
import yaml

from hvd.bench import builds, collectives, page, picture, result, solves
from hvd.bench.result import Benchmark, Collective, Collectives, Row
from hvd.core.errors import HvdError
from hvd.model import specs
from hvd.model.versions import pinned
from hvd.report import canvas
from hvd.solve.spack import Spack

HOST = {"os": "Linux", "cpu": "zen3", "cores": 2, "memory": 2**33}


def part(name, *rows, **versions):
    return Benchmark(name, list(rows), versions, HOST, "2026-11-22")


BUILDS = part(
    "builds",
    Row("plain pip", [10.0, 9.0, 11.0], "local-hvd", "baseline", 50 * 2**20),
    Row("spack install", [7.0], "local-hvd", installed=5 * 2**20),
    Row("binary cache", [5.0], "local-hvd"),
    Row("plain pip", [20.0], "PyTorch and TensorFlow"),
    Row("spack install", [12.0], "PyTorch and TensorFlow"),
    Spack="1.2",
)
SOLVES = part(
    "solves",
    Row("hvd", [12.0], "local-hvd"),
    Row("builtin", [40.0], "local-hvd", note="builtin.py-horovod"),
    Row("hvd", [20.0], "frontier-hvd"),
    Row("builtin", [], "frontier-hvd", note="builtin.py-horovod +rocm"),
    Row("together", [12.0], "1"),
    Row("together", [24.0], "2"),
)
#: Medians.
TIMES = {
    "Horovod, MPI": 0.03,
    "Horovod, MPI, waits as released": 1.0,
    "mpi4py": 0.024,
    "Horovod, Gloo": 0.05,
    "torch.distributed, Gloo": 0.1,
}


def timed(name, median, ranks=2, size=4, operation="allreduce", dtype="float32", in_place=True):
    ends = {"minimum": median / 2, "p95": median * 2, "maximum": median * 4}
    return Collective(name, operation, dtype, in_place, ranks, size, 100, median=median, **ends)


COLLECTIVES = Collectives(
    "collectives",
    [
        *(
            timed(name, median, ranks, size)
            for ranks in (2, 4)
            for size in (4, 64 * 2**20)
            for name, median in TIMES.items()
        ),
        timed("Horovod, MPI", 0.04, 2, 2**20, "allgather", "bfloat16", False),
        timed("Horovod, MPI", 0.02, 2, 2**20, "broadcast"),
        timed("mpi4py", 0.01, 2, 2**20, "broadcast"),
        timed("Horovod, MPI", 0.06, 2, 2**20, "grouped allreduce"),
        timed("Horovod, MPI", 0.08, 2, 2**20, "many allreduces"),
        timed("mpi4py", 0.02, 2, 2**20, "many allreduces"),
        timed("Horovod, MPI", 0.4, 2, 2**20, "training, small model"),
        timed("Horovod, MPI, waits as released", 0.5, 2, 2**20, "training, small model"),
    ],
    {"Horovod": "0.28.1"},
    {**HOST, "load": 0.1, "pinning": {"mpirun": 1, "horovodrun --gloo": 2}},
    "2026-11-22",
)
ALL = [BUILDS, SOLVES, COLLECTIVES]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(result, "DIRECTORY", tmp_path / "performance")
    for name in ("PAGE", "MORE_RANKS"):
        path = tmp_path / getattr(page, name).name
        monkeypatch.setattr(page, name, path)
        path.write_text(f"# Title\n\n{page.BEGIN}\n<!-- end -->\n")
    for part in ALL:
        result.save(part)
    return tmp_path


def test_what_is_kept_is_what_was_measured(kept):
    assert result.load_all() == ALL
    path = result.file("builds")
    data = json.loads(path.read_text())
    assert data["rows"][0]["seconds"] == [10.0, 9.0, 11.0]
    path.write_text(json.dumps({**data, "rows": [{"name": "x"}]}))
    with pytest.raises(HvdError, match="builds.json.*key 'rows:0'"):
        result.load_all()


def test_the_reference_is_without_patches_that_there_are(py_horovod):
    newest = py_horovod.patches(specs.parse("py-horovod@0.28.1"))
    assert set(builds.FASTER) < {path.name for path in newest}


def test_goals_are_ratios():
    ratios = [goal.ratio(ALL) for goal in page.GOALS]
    none = [None] * len(page.GOALS)
    found = dict(zip((goal.text for goal in page.GOALS), ratios))
    assert ratios[:4] == [pytest.approx(each) for each in (0.7, 0.6, 0.1, 0.3)]
    assert found["Allreduce of 4 B over MPI vs Horovod as released"] == pytest.approx(0.03)
    # the worst of those that were measured
    assert found["Allreduce of 16 MiB and more over MPI vs mpi4py, worst size"] == pytest.approx(
        1.25
    )
    assert found["Allreduce of any size over Gloo vs torch.distributed, worst size"] == 0.5
    assert found["Training step of the small model over MPI vs Horovod as released"] == 0.8
    assert [goal.ratio([]) for goal in page.GOALS] == none


@pytest.mark.parametrize(
    "words",
    [
        "| at most 0.75 | 0.70 | met |",
        "| at most 0.25 | 0.30 | **not met** |",
        "| at most 0.1 | 0.10 | met |",
        "| local-hvd | plain pip | 10.0 s | 9.00 s, 11.0 s | 1.00 | 50 MiB | baseline |",
        "| spack install | 7.00 s | once | 0.70 | 5 MiB |",
        "| binary cache | 5.00 s | once | 0.50 | – |",
        "| frontier-hvd | 20.0 s | once | no solution | – |",
        "| 2 | 24.0 s | 12.0 s |",
        "### Allreduce by size: MPI, 2 ranks\n",
        "### Allreduce by size: Gloo, 2 ranks\n",
        "| Size | Minimum | Median | 95 % | Maximum | Algorithm | Bus | As released | mpi4py |",
        # 2 (n - 1) / n is 1 on two ranks
        "| 64 MiB | 15.0 ms | 30.0 ms | 60.0 ms | 120 ms | 2.24 GB/s | 2.24 GB/s | 1.00 s |",
        "| allgather, bfloat16, out of place | 40.0 ms |",
        "| broadcast, float32, in place | 20.0 ms, 2.00 |",
        "| grouped allreduce, 1 MiB | 60.0 ms | 120 ms | – | – | 20.0 ms | 3.00 |",
        "| training, small model, 1 MiB | 400 ms | 800 ms | 500 ms | 0.80 | – | – |",
        "mpirun gave each rank 1 core; horovodrun --gloo gave each rank 2 cores.",
        "2026-11-22, Linux, zen3, 2 cores, 8 GiB; Spack 1.2.",
    ],
)
def test_the_page_has_goals_and_results(words):
    assert words in page.page(ALL)


def test_more_ranks_than_cores_have_a_page_of_their_own():
    text = page.more_ranks(ALL)
    assert "4 ranks" in text and "2 ranks" not in text
    # 2 (n - 1) / n is 1.5 on four
    assert "| 2.24 GB/s | 3.36 GB/s |" in text
    assert "4 ranks" not in page.page(ALL)
    assert "##" not in page.page([]) + page.more_ranks([])


def test_a_page_that_is_not_what_is_known_is_refused(kept):
    with pytest.raises(HvdError, match="performance.md"):
        page.write(check=True)
    assert {path.name for path in page.write()} == {
        "performance.md",
        "performance-more-ranks.md",
        *(f"performance-{part.name}.svg" for part in ALL),
    }
    assert page.write(check=True) == []
    for drawn in ALL:
        svg = (kept / f"performance-{drawn.name}.svg").read_text()
        assert svg.startswith("<?xml") and "<path" in svg
        assert canvas.digest_of(svg) == picture.digest(drawn)
    result.save(part("builds", *BUILDS.rows[:2]))
    with pytest.raises(HvdError, match="performance-builds.svg"):
        page.write(check=True)


def test_the_repository_s_page_is_up_to_date():
    assert page.write(check=True) == []


PARAMETERS = {
    **dict.fromkeys(("mpi", "gloo", "nccl", "cuda"), True),
    **dict.fromkeys(("ccl", "ddl", "rocm"), False),
    "frameworks": ["tensorflow", "pytorch"],
    "cuda_arch": ["80"],
}


@pytest.mark.parametrize(
    ("parameters", "spec"),
    [
        (
            {},
            "frameworks=pytorch,tensorflow controllers=mpi,gloo tensor_ops=nccl"
            " +cuda ~rocm cuda_arch=80 ^nccl cuda_arch=80",
        ),
        (
            {"nccl": False, "ddl": True, "gloo": False, "cuda": False, "frameworks": ["mxnet"]},
            "frameworks=mxnet controllers=mpi tensor_ops=mpi ~cuda ~rocm",  # it has no DDL
        ),
        (
            # which has RCCL, and not NCCL
            {"mpi": False, "cuda": False, "rocm": True},
            "frameworks=pytorch,tensorflow controllers=gloo tensor_ops=gloo ~cuda +rocm",
        ),
    ],
)
def test_nearest_spec_of_builtin(parameters, spec):
    node = {"name": "py-horovod", "version": "0.28.1", "parameters": {**PARAMETERS, **parameters}}
    solution = {"a": {"name": "python"}, "b": node}
    assert solves.nearest(solution) == f"builtin.py-horovod@0.28.1 {spec}"


def test_a_call_takes_as_long_as_on_its_slowest_rank_and_rounds_count_together(tmp_path):
    what = {"operation": "alltoall", "dtype": "float16", "in_place": False, "bytes": 4}
    rounds = ([[1.0, 2.0], [3.0, 1.0]], [[2.5], [2.0]])
    outs = [tmp_path / str(number) for number in range(len(rounds))]
    for out, ranks in zip(outs, rounds):
        out.mkdir()
        for rank, seconds in enumerate(ranks):
            calls = [{**what, "seconds": seconds}]
            if out is outs[0]:
                # the other round has one size only
                calls.append({**what, "bytes": 8, "seconds": [4.0, 4.0]})
            record = {"cores": 2 - rank, "calls": calls}
            (out / f"rank-{rank}.json").write_text(json.dumps(record))
    row, other = collectives.rows("ours", outs, 2)
    assert (other.bytes, other.calls, other.median) == (8, 2, 4.0)
    assert (row.name, row.operation, row.ranks, row.calls) == ("ours", "alltoall", 2, 3)
    assert (row.minimum, row.median, row.maximum) == (2.0, 2.5, 3.0)
    assert row.bus_bandwidth == pytest.approx(4 / 2.5 / 2)
    assert collectives.cores_per_rank(outs[0]) == 1
    with pytest.raises(HvdError, match="rank 2 recorded nothing"):
        collectives.rows("ours", outs, 3)


@pytest.fixture
def spack(tmp_path, monkeypatch):
    monkeypatch.setenv("HVD_STATE", str(tmp_path / "state"))
    return Spack(tmp_path / "spack", tmp_path / "packages", pinned().pairs[0], {})


def _compilers(spack, *languages):
    external = {"extra_attributes": {"compilers": {name: "/usr/bin/x" for name in languages}}}
    spack.scope.mkdir(parents=True, exist_ok=True)
    content = {"packages": {"gcc": {"externals": [external]}, "gmake": {"externals": [{}]}}}
    (spack.scope / "packages.yaml").write_text(yaml.safe_dump(content))


def test_spacks_own_recipe_has_the_compilers_of_this_machine_and_needs_fortran(spack):
    _compilers(spack, "c", "cxx")
    with pytest.raises(HvdError, match="Fortran"):
        solves._configure(spack)
    _compilers(spack, "c", "cxx", "fortran")
    scope = pathlib.Path(solves._configure(spack)["SPACK_USER_CONFIG_PATH"])
    ours = (spack.scope / "packages.yaml").read_text()
    assert (scope / "packages.yaml").read_text() == ours
    assert "hvd" not in yaml.safe_load((scope / "repos.yaml").read_text())["repos"]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_fresh_solve_takes_nothing_from_spacks_cache(spack, tmp_path, monkeypatch, fresh):
    asked = []

    known = {"unneeded": [], "compilers_here": True}
    monkeypatch.setattr(Spack, "ask", lambda *_, **__: known)
    monkeypatch.setattr(Spack, "run", lambda _, *arguments, **__: asked.append(arguments))
    spack.concretize(tmp_path / "local-hvd", tmp_path / "log", local=False, fresh=fresh)
    assert ("concretizer:concretization_cache:enable:false" in asked[-1]) == fresh
    assert "concretize" in asked[-1]
