"""Several environments are solved at a time, each in a process of its own."""

from __future__ import annotations

import shutil

import pytest

from hvd.build import engine_spack, solve_all
from hvd.build.pipeline import Options
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.run import StageFailed
from hvd.model import environment
from hvd.report import RunReport
from hvd.solve import kept
from tests.unit.building import fake_spack, site_solution

NAMES = ["summit-hvd", "perlmutter-hvd"]


@pytest.fixture
def fake(workplace, monkeypatch):
    """A Spack that solves `NAMES`, in a copy of the environments."""
    copied = workplace / "environments"
    shutil.copytree(paths.ENVIRONMENTS, copied, symlinks=True, ignore=_left_by_spack)
    monkeypatch.setattr(paths, "ENVIRONMENTS", copied)
    made = fake_spack(workplace / "spack")
    made.let(locks={name: site_solution(name) for name in NAMES})
    monkeypatch.setattr(engine_spack, "locate", lambda sources, task: made.spack)
    return made


_left_by_spack = shutil.ignore_patterns("spack.lock", ".spack-env", "externals.yaml")


def report(fake):
    name = f"{solve_all.NAME}-{fake.spack.pair.name}"
    return RunReport.load(paths.state() / "reports" / name / "report.json")


def test_all_are_solved_and_reported(fake):
    found = solve_all.run(NAMES, Options())
    assert [each.environment.name for each in found] == NAMES
    assert [each.specs for each in found] == [site_solution(name) for name in NAMES]
    setup, concretize = report(fake).stages
    assert [step.name for step in concretize.steps] == sorted(NAMES)
    assert {step.status for step in concretize.steps} == {"ok"}
    # they are solved already, and sites' environments take nothing from this machine
    assert "find" not in fake.commands()
    solve_all.run(NAMES, Options())
    assert {step.status for step in report(fake).stages[1].steps} == {"cached"}
    assert fake.calls() == []


def test_one_that_fails_does_not_keep_the_others_from_being_solved(fake, capsys):
    fake.let(locks={NAMES[0]: site_solution(NAMES[0])}, lock=site_solution(NAMES[0]))
    with pytest.raises(StageFailed) as caught:
        solve_all.run(NAMES, Options())
    assert caught.value.status == 11 and NAMES[1] in caught.value.error.message
    assert {step.name: step.status for step in report(fake).stages[1].steps} == {
        NAMES[0]: "ok",
        NAMES[1]: "failed",
    }
    assert "perlmutter-hvd does not match its site" in capsys.readouterr().err


def test_a_setup_that_fails_solves_nothing(fake, monkeypatch):
    def locate(sources, task):
        raise HvdError("there is no Spack")

    monkeypatch.setattr(engine_spack, "locate", locate)
    with pytest.raises(StageFailed) as caught:
        solve_all.run(NAMES, Options())
    assert caught.value.status == 10 and fake.calls() == []


def test_solutions_are_kept_and_compared(fake):
    name = NAMES[0]
    chosen = environment.load(name)
    before = kept.load(chosen)
    with pytest.raises(HvdError, match="py-horovod") as caught:
        solve_all.keep([name], Options(), check=True)
    assert f"{name}/dag.json as kept" in caught.value.message and kept.load(chosen) == before
    solve_all.keep([name], Options(), check=False)
    assert kept.load(chosen) != before
    assert {each.name for each in kept.load(chosen).packages} == {
        each["name"] for each in site_solution(name).values()
    }
    solve_all.keep([name], Options(), check=True)
    # the page as well
    page = kept.file(chosen).with_suffix(".md")
    page.write_text(page.read_text() + "x")
    with pytest.raises(HvdError, match="dag.md"):
        solve_all.keep([name], Options(), check=True)


def test_those_that_take_what_this_machine_has_are_set_up(monkeypatch, fake):
    done = []

    def setup(self, run):
        done.append(self.environment.name)
        return {"python": self.environment.name}

    monkeypatch.setattr(engine_spack.SpackEngine, "setup", setup)
    subjects = [environment.load(name) for name in (NAMES[0], "local-hvd")]
    tasks = solve_all.set_up(subjects, fake.spack, Options(), None)
    assert done == ["local-hvd"]
    assert [found for _, found in tasks] == [{}, {"python": "local-hvd"}]
    assert [engine.environment for engine, _ in tasks] == subjects


def test_wrong_usage_is_no_failed_stage(fake):
    with pytest.raises(HvdError, match="no-such-hvd"):
        solve_all.run([*NAMES, "no-such-hvd"], Options())
    # a solution of this machine is not kept
    with pytest.raises(HvdError, match="local-hvd"):
        solve_all.keep(["local-hvd", NAMES[0]], Options(), check=True)
    assert fake.calls() == []
