"""What changed between two solutions."""

import copy
import json
import subprocess

import pytest

from hvd.cli import main as cli
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.model import environment, pins, solution
from hvd.solve import dag_table, difference, sides


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
    return [
        (each.package, each.kind, each.before, each.after)
        for each in difference.compare(
            sides.parse("A", text(before)), sides.parse("B", text(after))
        )
    ]


@pytest.fixture
def changed():
    return copy.deepcopy(LOCK)


def test_the_same_is_the_same(changed):
    assert compare(changed) == []


def test_added_and_removed(changed):
    del changed["dddddddddd"]
    changed["eeeeeeeeee"] = spec("cmake", "3.31", external="/usr")
    assert compare(changed) == [
        ("cmake", "added", "", "@3.31 (/usr)"),
        ("py-wheel", "removed", "@0.45.1", ""),
    ]


def test_a_version_and_what_follows_from_it(changed):
    changed["cccccccccc"]["version"] = "2.15.0"
    changed["ffffffffff"] = changed.pop("aaaaaaaaaa")
    assert compare(changed) == [
        ("py-horovod", "hash only", "aaaaaaa", "fffffff, by a dependency, or a patch"),
        ("py-torch", "version", "2.13.0", "2.15.0"),
    ]


def test_variants_are_shown_where_they_differ(changed):
    changed["aaaaaaaaaa"]["parameters"].update(gloo=True, frameworks=["pytorch", "keras"])
    assert compare(changed) == [
        ("py-horovod", "variants", "~gloo frameworks=pytorch", "+gloo frameworks=pytorch,keras")
    ]


def test_a_compiler(changed):
    changed["bbbbbbbbbb"]["version"] = "13.1.0"
    assert compare(changed) == [
        ("gcc", "version", "12.2.0", "13.1.0"),
        ("py-horovod", "compiler", "gcc@12.2.0", "gcc@13.1.0"),
    ]


def test_a_processor_and_where_an_external_is(changed):
    changed["dddddddddd"]["arch"]["target"] = "x86_64_v3"
    changed["cccccccccc"]["external"] = {"path": "/sw/other", "module": ["torch/2"]}
    assert compare(changed) == [
        ("py-torch", "from", "/sw/torch", "/sw/other, modules torch/2"),
        ("py-wheel", "architecture", "linux-debian12-zen3", "linux-debian12-x86_64_v3"),
    ]


def test_a_recipe_alone(changed):
    changed["ffffffffff"] = {**changed.pop("dddddddddd"), "package_hash": "other"}
    assert compare(changed) == [("py-wheel", "hash only", "ddddddd", "fffffff, by its recipe")]


def test_two_of_one_name_are_not_mixed_up(changed):
    changed["eeeeeeeeee"] = spec("py-wheel", "0.46.0")
    assert compare(changed) == [("py-wheel", "added", "", "@0.46.0")]


@pytest.mark.parametrize("name", environment.of_sites())
def test_a_table_of_a_site_is_read_whole(name):
    """Each row is written again as it stands there."""
    kept = dag_table.file(environment.load(name)).read_text()
    header, rule, *rows = [line for line in kept.splitlines() if line.startswith("|")]
    parsed = dag_table.parse(kept)
    assert len(parsed) == len(rows) > 5
    assert dag_table.table(header.strip("| ").split(" | "), parsed)[2:-1] == rows


def test_a_table_and_a_lock_are_compared_as_far_as_the_table_goes(changed):
    table = dag_table.render(
        environment.load("perlmutter-hvd"), solution.nodes(LOCK), pins.versions().pairs[0]
    )
    before = sides.parse("dag.md", table)
    assert difference.compare(before, sides.parse("lock", text(changed))) == []
    changed["aaaaaaaaaa"]["parameters"]["gloo"] = True
    (change,) = difference.compare(before, sides.parse("lock", text(changed)))
    assert (change.package, change.kind, change.after) == ("py-horovod", "variants", "+gloo")


@pytest.fixture
def diff(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main(["diff", *map(str, arguments)])
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


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


def test_a_revision_of_this_repository(diff, tmp_path, monkeypatch, changed):
    """As in a merge request: the table of the target branch, and the one that is proposed."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    git = ["git", "-C", tmp_path, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    (tmp_path / "environments" / "x").mkdir(parents=True)
    kept = dag_table.file(environment.load("alpha-hvd")).read_text()
    (tmp_path / "environments" / "x" / "dag.md").write_text(kept)
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    (tmp_path / "now.md").write_text(kept.replace("| 1.12.1 |", "| 1.12.2 |"))
    assert diff("HEAD:environments/x", tmp_path / "environments" / "x")[0] == 0
    status, out, _ = diff("HEAD:environments/x/", tmp_path / "now.md", "--markdown")
    assert status == 1
    assert "| py-torch | version | 1.12.1 | 1.12.2 |" in out
    for wrong, said in (("HEAD~9:x", "git knows no revision"), ("HEAD:nothing", "has no nothing")):
        status, _, err = diff(wrong, "alpha-hvd")
        assert status == 2 and said in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is no lock file of Spack"),
        ('{"concrete_specs": {"a": {"name": "b"}}}', "is no lock file of Spack: 'version'"),
        ("| Package |", "neither a spack.lock nor a dag.md"),
    ],
)
def test_what_is_no_solution_is_refused(diff, tmp_path, content, said):
    (tmp_path / "file").write_text(content)
    status, out, err = diff(tmp_path / "file", "alpha-hvd")
    assert status == 2 and not out
    assert str(tmp_path / "file") in err and said in err and "hint" in err


def test_an_environment_that_was_not_solved_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "STATE", tmp_path)
    name = environment.derive(environment.load("local-hvd"), "py-horovod@0.28.1 ~mpi+gloo").name
    with pytest.raises(HvdError, match="spack.lock nor dag.md") as raised:
        sides.load(name)
    assert raised.value.remedy == f"solve it: ./hvd concretize {name}"
