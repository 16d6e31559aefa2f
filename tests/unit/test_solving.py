"""Solutions of sites' environments: solved at a time, kept, and with indices of our recipes."""

import copy
import os
import shutil

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.options import Options
from hvd.core.run import StageFailed
from hvd.engines import engine_spack, solve_all
from hvd.model import environment
from hvd.model.versions import pinned
from hvd.solve import kept, repo_index
from tests.unit.building import FakeSpack, site_solution, spec

NAMES = ["summit-hvd", "perlmutter-hvd"]


@pytest.fixture
def fake(workplace, state, monkeypatch):
    """A Spack that solves `NAMES`, in a copy of the environments."""
    copied = workplace / "environments"
    left = shutil.ignore_patterns("spack.lock", ".spack-env", "externals.yaml")
    shutil.copytree(paths.ENVIRONMENTS, copied, symlinks=True, ignore=left)
    monkeypatch.setattr(paths, "ENVIRONMENTS", copied)
    state.mkdir()
    made = FakeSpack(workplace / "spack")
    made.let(locks={name: site_solution(name) for name in NAMES})
    monkeypatch.setattr(engine_spack, "locate", lambda sources, task: made.spack)
    return made


def test_all_are_solved_in_order(fake):
    found = solve_all.run(NAMES, Options())
    assert [each.environment.name for each in found] == NAMES
    assert [each.specs for each in found] == [site_solution(name) for name in NAMES]
    # sites' environments take nothing from this machine
    assert "find" not in fake.commands()
    solve_all.run(NAMES, Options())
    assert fake.calls() == []


def test_one_that_fails_does_not_keep_the_others_from_being_solved(fake, capsys):
    fake.let(locks={NAMES[0]: site_solution(NAMES[0])}, lock=site_solution(NAMES[0]))
    with pytest.raises(StageFailed) as caught:
        solve_all.run(NAMES, Options())
    assert caught.value.status == 11 and NAMES[1] in caught.value.error.message
    said = capsys.readouterr()
    assert "perlmutter-hvd does not match its site" in said.err
    assert any(line.split()[:1] == [NAMES[0]] and " ok" in line for line in said.out.splitlines())


def test_solutions_are_kept_and_compared(fake):
    chosen = environment.load(NAMES[0])
    before = kept.load(chosen)
    with pytest.raises(HvdError, match="(?m)^-py-horovod@") as caught:
        solve_all.keep(NAMES[:1], Options(), check=True)
    assert f"{NAMES[0]}/dag.txt" in caught.value.message and kept.load(chosen) == before
    solve_all.keep(NAMES[:1], Options(), check=False)
    names = {each["name"] for each in site_solution(NAMES[0]).values()}
    assert {each.name for each in kept.load(chosen).packages} == names
    solve_all.keep(NAMES[:1], Options(), check=True)


def test_wrong_usage_is_refused_before_anything_is_solved(fake):
    with pytest.raises(HvdError, match="no-such-hvd"):
        solve_all.run([*NAMES, "no-such-hvd"], Options())
    # a solution of this machine is not kept
    with pytest.raises(HvdError, match="local-hvd"):
        solve_all.keep(["local-hvd", NAMES[0]], Options(), check=True)
    assert fake.calls() == []


LOCK = {
    "aaaaaaaaaa": spec(
        "py-horovod",
        "0.28.1",
        [("gcc", "bbbbbbbbbb", ["c", "cxx"]), ("py-torch", "cccccccccc", [])],
        mpi=True,
        gloo=False,
        frameworks=["pytorch"],
    ),
    "bbbbbbbbbb": spec("gcc", "12.2.0", external="/usr"),
    "cccccccccc": spec("py-torch", "2.13.0", external="/sw/torch", cuda=False),
    "dddddddddd": spec("py-wheel", "0.45.1"),
}
PACKAGES = [
    "py-horovod@0.28.1 +mpi frameworks=pytorch",
    "py-wheel@0.45.1",
    "gcc@12.2.0 [/usr]",
    "py-torch@2.13.0 [/sw/torch]",
]


@pytest.fixture
def moon(tmp_path):
    return environment.Environment("moon-hvd", tmp_path, ["py-horovod +mpi"], [])


def make(chosen, lock):
    return kept.make(chosen, lock, pinned().pairs[0])


def test_a_solution_is_written_with_what_is_built(moon):
    made = make(moon, LOCK)
    assert made.text.splitlines()[-4:] == PACKAGES
    assert "for linux-debian12-zen3." in made.text and "#   py-horovod +mpi\n" in made.text
    assert kept.built(made.packages) == ["py-wheel@0.45.1"]


def test_modules_and_variants_of_externals_that_sites_state(moon):
    lock = copy.deepcopy(LOCK)
    lock["bbbbbbbbbb"]["parameters"]["languages"] = ["c", "fortran"]
    lock["cccccccccc"]["external"]["module"] = ["torch/2", "cuda"]
    made = make(moon, lock)
    assert "gcc@12.2.0 languages=c,fortran [/usr]" in made.text
    assert made.text.endswith("\npy-torch@2.13.0 [/sw/torch, modules torch/2 cuda]\n")
    kept.file(moon).write_text(made.text)
    assert kept.load(moon) == made


def test_what_depends_on_the_machine_that_solves_is_not_kept(moon):
    """Where the compiler is there, Spack asks it for more."""
    lock = copy.deepcopy(LOCK)
    lock["eeeeeeeeee"] = spec("gcc-runtime", "12.2.0")
    lock["bbbbbbbbbb"]["parameters"]["bootstrap"] = True
    assert make(moon, lock) == make(moon, LOCK)


@pytest.mark.parametrize("name", environment.of_sites())
def test_each_site_has_one_for_its_specs(name):
    chosen = environment.load(name)
    solution = kept.load(chosen)
    assert all(f"#   {root}\n" in solution.text for root in chosen.specs)
    assert [f"{each}" for each in solution.packages] == [
        line for line in solution.text.splitlines() if not line.startswith("#")
    ]
    assert "py-horovod" in [each.name for each in solution.packages]


@pytest.mark.parametrize("text", [None, "<<<<<<< HEAD\n"])
def test_a_missing_or_damaged_file_is_named(moon, text):
    if text:
        kept.file(moon).write_text(text)
    with pytest.raises(HvdError, match="dag.txt") as raised:
        kept.load(moon)
    assert "./hvd dev lock moon-hvd" in raised.value.remedy


@pytest.fixture
def recipes(monkeypatch, tmp_path):
    """A copy of our recipes, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(paths, "PACKAGES", tmp_path / "packages")
    shutil.copytree(paths.ROOT / "packages", paths.PACKAGES)
    return paths.PACKAGES


def write(place, text, time):
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    os.utime(place, (time, time))


def test_a_patch_alone_makes_other_indices(recipes):
    """Its recipe is as old as before, so Spack would look for the patch that was."""
    before = repo_index.directory("spack-1.2")
    assert before.is_dir() and repo_index.directory("spack-1.2") == before
    assert repo_index.directory("spack-1.1") != before
    patch = next(recipes.glob("*/patches/*.patch"))
    patch.write_text(patch.read_text() + "\n")
    assert repo_index.directory("spack-1.2") != before


def test_those_of_spacks_own_packages_are_taken_over(recipes):
    place = repo_index.directory("spack-1.2")
    old = place.parent / "patches" / "builtin-v5-index.json"
    write(old, "of an earlier ./hvd", 1000)
    write(place / "patches" / "builtin-v5-index.json", "newer", 2000)
    write(place / "patches" / "hvd-v5-index.json", "ours", 3000)
    (recipes / "another.patch").write_text("x")
    other = repo_index.directory("spack-1.2")
    assert [file.name for file in (other / "patches").iterdir()] == ["builtin-v5-index.json"]
    taken = other / "patches" / "builtin-v5-index.json"
    assert taken.read_text() == "newer" and taken.stat().st_mtime == 2000
    assert not [each for each in place.parent.iterdir() if each.name.startswith("tmp")]
