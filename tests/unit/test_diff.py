"""What changed between two solutions."""

import copy
import dataclasses
import functools
import json

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.model import environment
from hvd.model.versions import pinned
from hvd.solve import difference, kept, sides
from tests.checkout import commit


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


def text(specs):
    return json.dumps({"_meta": {}, "roots": [], "concrete_specs": specs})


def compare(after, before=LOCK):
    sides_ = sides.of_specs("A", before), sides.of_specs("B", after)
    return [
        (each.package, each.kind, each.before, each.after) for each in difference.compare(*sides_)
    ]


@pytest.fixture
def changed():
    return copy.deepcopy(LOCK)


WORDS = {"mpi": True, "gloo": True, "frameworks": ["pytorch", "keras"]}
ARCH = {"platform": "linux", "platform_os": "debian12", "target": "x86_64_v3"}


@pytest.mark.parametrize(
    ("package", "change", "expected"),
    [
        ("dddddddddd", {}, []),
        (
            "aaaaaaaaaa",
            {"parameters": WORDS},
            ["py-horovod|variants|~gloo frameworks=pytorch|+gloo frameworks=pytorch,keras"],
        ),
        (
            "bbbbbbbbbb",
            {"version": "13.1.0"},
            ["gcc|version|12.2.0|13.1.0", "py-horovod|compiler|gcc@12.2.0|gcc@13.1.0"],
        ),
        (
            "cccccccccc",
            {"external": {"path": "/sw/other", "module": ["torch/2"]}},
            ["py-torch|from|/sw/torch|/sw/other, modules torch/2"],
        ),
        (
            "dddddddddd",
            {"arch": ARCH},
            ["py-wheel|architecture|linux-debian12-zen3|linux-debian12-x86_64_v3"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else None,
)
def test_what_changed_in_a_package(changed, package, change, expected):
    changed[package].update(change)
    assert ["|".join(each) for each in compare(changed)] == expected


def test_added_and_removed(changed):
    del changed["dddddddddd"]
    changed["eeeeeeeeee"] = spec("cmake", "3.31", external="/usr")
    # one more of a name is not mixed up with the one that was there
    changed["ffffffffff"] = spec("py-torch", "2.15.0")
    assert compare(changed) == [
        ("cmake", "added", "", "@3.31 (/usr)"),
        ("py-torch", "added", "", "@2.15.0"),
        ("py-wheel", "removed", "@0.45.1", ""),
    ]


@pytest.mark.parametrize(
    ("package", "recipe", "why"),
    [("dddddddddd", "other", "its recipe"), ("aaaaaaaaaa", "r", "a dependency, or a patch")],
)
def test_why_a_hash_alone_changed(changed, package, recipe, why):
    name = changed[package]["name"]
    changed["ffffffffff"] = {**changed.pop(package), "package_hash": recipe}
    assert compare(changed) == [(name, "hash only", package[:7], f"fffffff, by {why}")]


@pytest.mark.parametrize("name", environment.of_sites())
def test_the_page_of_a_kept_solution_is_made_from_it(name):
    chosen = environment.load(name)
    solution = kept.load(chosen)
    assert solution.specs == chosen.specs and len(solution.packages) > 5
    assert kept.difference(chosen, solution) == []


@pytest.fixture
def made():
    """What is kept of ``LOCK``."""
    chosen = environment.load("perlmutter-hvd")
    return kept.make(chosen, LOCK, pinned().pairs[0])


def test_what_is_kept_of_a_solution(made):
    assert made.architectures == ["linux-debian12-zen3"]
    assert [(each.name, each.variants, each.origin) for each in made.packages] == [
        ("py-horovod", ("+mpi", "frameworks=pytorch"), "built"),
        ("py-wheel", (), "built"),
        ("gcc", (), "/usr"),
        ("py-torch", (), "/sw/torch"),
    ]
    # its page shows every architecture
    page = kept.render(dataclasses.replace(made, architectures=["a-b-c", "d-e-f", "g-h-i"]))
    assert "2 packages to build, 2 externals, all for a-b-c except d-e-f, g-h-i." in page
    assert "| py-horovod | 0.28.1 | +mpi frameworks=pytorch | built |\n| py-wheel |" in page


def test_what_depends_on_the_machine_that_solves_is_not_kept(made, changed):
    """Where the compiler is there, Spack asks it for more."""
    changed["eeeeeeeeee"] = spec("gcc-runtime", "12.2.0")
    changed["bbbbbbbbbb"]["parameters"]["bootstrap"] = True
    chosen = environment.load("perlmutter-hvd")
    assert kept.make(chosen, changed, pinned().pairs[0]) == made
    # what the externals of sites state is
    changed["bbbbbbbbbb"]["parameters"]["languages"] = ["c", "fortran"]
    (gcc,) = (
        each
        for each in kept.make(chosen, changed, pinned().pairs[0]).packages
        if each.name == "gcc"
    )
    assert gcc.variants == ("languages=c,fortran",)


def test_a_kept_solution_is_written_and_compared(tmp_path, made):
    chosen = environment.Environment("x", tmp_path, [], [])
    assert len(kept.difference(chosen, made)) > len(made.packages)
    kept.write(chosen, made)
    assert kept.load(chosen) == made and kept.difference(chosen, made) == []
    first, *others = made.packages
    newer = dataclasses.replace(first, version="0.28.2")
    lines = kept.difference(chosen, dataclasses.replace(made, packages=[newer, *others]))
    assert {f"--- {tmp_path}/dag.{kind} as kept" for kind in ("md", "json")} <= set(lines)
    assert any(line.startswith("+| py-horovod | 0.28.2 |") for line in lines)


def test_a_kept_solution_and_a_lock_are_compared_as_far_as_it_goes(made, changed):
    before = sides.parse("dag.json", json.dumps(dataclasses.asdict(made)))
    assert difference.compare(before, sides.parse("lock", text(changed))) == []
    changed["aaaaaaaaaa"]["parameters"]["gloo"] = True
    (change,) = difference.compare(before, sides.parse("lock", text(changed)))
    assert (change.package, change.kind, change.after) == ("py-horovod", "variants", "+gloo")


@pytest.fixture
def diff(hvd):
    return functools.partial(hvd, "diff")


def test_status_and_markdown(diff, tmp_path, changed):
    (tmp_path / "a.lock").write_text(text(LOCK))
    assert diff(tmp_path / "a.lock", tmp_path / "a.lock", "--markdown")[0] == 0
    changed["cccccccccc"]["version"] = "2.15.0"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "spack.lock").write_text(text(changed))
    status, out, _ = diff(tmp_path / "a.lock", tmp_path / "b", "--markdown")
    assert status == 1
    assert out.startswith("**1 package changed**\n\n| Package | Change |")
    assert "| py-torch | version | 2.13.0 | 2.15.0 |\n" in out
    status, out, _ = diff(tmp_path / "a.lock", tmp_path / "b")
    assert status == 1 and "py-torch" in out


def test_a_revision_of_this_repository(diff, tmp_path, monkeypatch):
    """As in a merge request: the solution of the target branch, and the one that is proposed."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    (tmp_path / "environments" / "x").mkdir(parents=True)
    content = kept.file(environment.load("alpha-hvd")).read_text()
    (tmp_path / "environments" / "x" / "dag.json").write_text(content)
    commit(tmp_path)
    (tmp_path / "now.json").write_text(content.replace('"1.12.1"', '"1.12.2"'))
    assert diff("HEAD:environments/x", tmp_path / "environments" / "x")[0] == 0
    for before in ("HEAD:environments/x/", "HEAD:environments/x/dag.json"):
        status, out, _ = diff(before, tmp_path / "now.json", "--markdown")
        assert status == 1
        assert "| py-torch | version | 1.12.1 | 1.12.2 |" in out
    for wrong, said in (("HEAD~9:x", "HEAD~9"), ("HEAD:nothing", "nothing")):
        status, _, err = diff(wrong, "alpha-hvd")
        assert status == 2 and said in err


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "# A page",
        '{"concrete_specs": {"a": {"name": "b"}}}',
        '{"environment": "x"}',
        '{"environment": "x", "packages": [{"nam": "y"}]}',
    ],
)
def test_what_is_no_solution_is_refused(diff, tmp_path, content):
    (tmp_path / "file").write_text(content)
    status, out, err = diff(tmp_path / "file", "alpha-hvd")
    assert status == 2 and not out
    assert str(tmp_path / "file") in err and "hint" in err


def test_what_was_not_solved_is_refused():
    derived = environment.derive(environment.load("local-hvd"), "py-horovod@0.28.1 ~mpi+gloo")
    for name in ("no-such-hvd", derived.name):
        with pytest.raises(HvdError, match=name) as raised:
            sides.load(name)
        assert raised.value.remedy
