"""Solutions of sites' environments as they are kept."""

import copy

import pytest

from hvd.core.errors import HvdError
from hvd.model import environment
from hvd.model.versions import pinned
from hvd.solve import kept


def spec(name, version="1.0", dependencies=(), external="", recipe="r", **parameters):
    """A concrete spec as in a lock file; what it needs by (name, hash, virtuals)."""
    found = {
        "name": name,
        "version": version,
        "arch": {"platform": "linux", "platform_os": "debian12", "target": {"name": "zen3"}},
        "parameters": {"build_system": "generic", "cflags": [], **parameters},
        "package_hash": recipe,
        "dependencies": [
            {"name": n, "hash": h, "parameters": {"deptypes": ["link"], "virtuals": v}}
            for n, h, v in dependencies
        ],
    }
    return {**found, "external": {"path": external, "module": None}} if external else found


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


def test_a_solution_is_written_and_read_again(moon):
    made = make(moon, LOCK)
    assert made.text.splitlines()[-4:] == PACKAGES
    assert "for linux-debian12-zen3." in made.text and "#   py-horovod +mpi\n" in made.text
    kept.file(moon).write_text(made.text)
    assert kept.load(moon) == made
    assert kept.built(made.packages) == ["py-wheel@0.45.1"]


def test_modules_and_variants_of_externals_that_sites_state(moon):
    lock = copy.deepcopy(LOCK)
    lock["bbbbbbbbbb"]["parameters"]["languages"] = ["c", "fortran"]
    lock["cccccccccc"]["external"] = {"path": "/sw/torch", "module": ["torch/2", "cuda"]}
    made = make(moon, lock)
    assert "gcc@12.2.0 languages=c,fortran [/usr]" in made.text
    assert made.text.endswith("\npy-torch@2.13.0 [/sw/torch, modules torch/2 cuda]\n")
    kept.file(moon).write_text(made.text)
    assert kept.load(moon).packages == made.packages


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
