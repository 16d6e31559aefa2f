"""``./hvd canary``: which commit of which repository is blamed, and the report."""

from __future__ import annotations

import json
from typing import Callable, Dict, List

import pytest

from hvd.build.pipeline import Options
from hvd.model import environment
from hvd.model.versions import Pair, Pin
from hvd.solve.location import Sources
from hvd.upkeep import canary
from tests.unit.test_history import Origin

#: What is wrong with a subject, by the numbers of the commits of Spack and of packages.
Rule = Callable[[str, int, int], str]


@pytest.fixture
def origins(tmp_path) -> Dict[str, Origin]:
    found = {kind: Origin(tmp_path / kind) for kind in canary.KINDS}
    for kind, origin in found.items():
        for number in range(8):
            origin.commit(f"{kind} {number}")
    return found


@pytest.fixture
def find(origins, monkeypatch, tmp_path):
    """A function that runs the canary with a rule in the place of Spack."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pins = [Pin("1", origins[kind].commits[0]) for kind in canary.KINDS]
    versions = canary.pinned()
    pair = Pair("pair", *pins)
    monkeypatch.setattr(type(versions), "pair", lambda self, name: pair)

    def run(rule: Rule, *subjects: str):
        solved: List[str] = []

        def solve(self, names, commits):
            solved.extend(names)
            for kind in canary.KINDS:
                self.histories[kind].checkout(commits[kind], tmp_path / "state" / "canary" / kind)
            numbers = [origins[kind].commits.index(commits[kind]) for kind in canary.KINDS]
            return {name: rule(name, *numbers) for name in names}

        monkeypatch.setattr(canary._Canary, "_solve", solve)
        addresses = {kind: str(origins[kind].root) for kind in canary.KINDS}
        options = Options(sources=Sources(**addresses, pair="pair"))
        return canary.run(subjects or ("a",), options), solved

    return run


def test_nothing_is_blamed_where_nothing_fails(find):
    report, solved = find(lambda *_: "", "a", "b")
    assert report.broken == [] and solved == ["a", "b"]
    assert report.between == {"spack": 7, "packages": 7}


@pytest.mark.parametrize("number", [1, 4, 7])
@pytest.mark.parametrize("kind", canary.KINDS)
def test_the_commit_that_broke_it_is_named(find, origins, kind, number):
    def rule(_, *numbers: int) -> str:
        return "no" if numbers[canary.KINDS.index(kind)] >= number else ""

    report, _ = find(rule)
    (broken,) = report.broken
    assert (broken.kind, broken.reason) == (kind, "no")
    assert broken.commit.id == origins[kind].commits[number]
    assert broken.commit.subject == f"{kind} {number}"


def test_what_a_commit_breaks_with_the_newest_spack_alone(find, origins):
    report, _ = find(lambda _, spack, packages: "no" if spack >= 3 and packages >= 5 else "")
    (broken,) = report.broken
    assert (broken.kind, broken.commit.id) == ("packages", origins["packages"].commits[5])


def test_the_second_thing_that_a_commit_breaks_takes_two_solves(find, origins):
    report, solved = find(lambda _, spack, packages: "no" if packages >= 5 else "", "a", "b", "c")
    assert {each.commit.id for each in report.broken} == {origins["packages"].commits[5]}
    # newest, pinned, the newest packages alone; three of a bisection, or both sides of its commit
    assert solved.count("a") == 6
    assert solved.count("b") == solved.count("c") == 5


def test_another_commit_is_found_for_another_thing(find, origins):
    report, _ = find(
        lambda name, spack, packages: "no" if packages >= {"a": 5, "b": 2}[name] else "", "a", "b"
    )
    found = {each.name: each.commit.id for each in report.broken}
    assert found == {"a": origins["packages"].commits[5], "b": origins["packages"].commits[2]}


def test_what_fails_with_the_pinned_pair_is_no_news(find):
    report, solved = find(lambda *_: "no")
    (broken,) = report.broken
    assert broken.commit is None and "supported pair either" in broken.note
    assert len(solved) == 3


def test_the_report_is_the_text_of_an_issue(find, tmp_path):
    report, _ = find(lambda _, spack, packages: "Error: |\nno `x`" if packages >= 5 else "")
    page, data = report.write(tmp_path / "out")
    text = page.read_text()
    # the stand-in for Spack has no such file
    assert "does not need `ci/spack-has-provider.patch`" in text
    assert text.startswith("# The newest Spack breaks a\n")
    assert "Broken since" in text and "packages 5" in text and "./hvd canary a" in text
    found = json.loads(data.read_text())
    assert found["format"] == canary.FORMAT
    assert found["broken"][0]["commit"]["subject"] == "packages 5"


def test_environments_keep_their_own_solutions():
    for name in environment.names():
        base, apart = environment.load(name), canary._apart(name)
        assert apart.directory != base.directory
        assert (apart.site, apart.root) == (base.site, base.root)
        assert environment.base(apart) == name


def test_a_name_that_is_not_known(hvd):
    done = hvd("canary", "perlmuter-hvd")
    assert done.status == 2 and "did you mean 'perlmutter-hvd'" in done.err
