"""The stages: their order, and what a failure in each of them leaves behind."""

from __future__ import annotations

import dataclasses

import pytest

from hvd.core import lock, paths
from hvd.core.errors import HvdError
from hvd.core.options import Options, Sources
from hvd.core.run import StageFailed
from hvd.engines import components, engine_spack, pipeline
from hvd.engines.engine_spack import SpackEngine
from hvd.model import built, environment
from hvd.model.solution import DagNode
from hvd.model.versions import pinned
from hvd.report import RunReport
from hvd.smoke.run import Check
from hvd.solve.spack import Spack
from tests import builds

NAME = environment.DEFAULT
STAGES = ("setup", "concretize", "build", "smoke")


class Engine:
    """An engine that does nothing, and fails where it is told to."""

    name = "pip"
    #: What has been done, of all engines.
    done: list
    fails: str

    def __init__(self, environment, **options):
        self.environment = environment
        self.options = options

    def do(self, name, run):
        Engine.done.append(name)
        with run.step(name):
            if Engine.fails == name:
                raise HvdError(f"{name} fails")

    def setup(self, run):
        self.do("setup", run)
        return {"distributions": {"mpi4py": {}}}

    def concretize(self, run, found):
        assert found["distributions"]
        self.do("concretize", run)
        return Solution(self)

    def commits(self):
        return {"Spack": "1" * 40}


@dataclasses.dataclass
class Solution:
    engine: Engine

    def build(self, run):
        self.engine.do("build", run)

    def record(self, task):
        Engine.done.append("record")
        if Engine.fails == "record":
            raise HvdError("record fails")
        done = builds.record(digest=str(len(Engine.done)))
        return done, [components.Component("py-horovod", "0.28.1", "py-horovod")]

    def versions(self):
        return {"Horovod": "0.28.1"}

    def dag(self):
        return [DagNode("py-horovod", "0.28.1")]

    def tree(self, log):
        return "py-horovod@0.28.1"


@pytest.fixture(autouse=True)
def stand_in(workplace, monkeypatch):
    monkeypatch.setattr(pipeline, "PipEngine", Engine)
    monkeypatch.setattr(pipeline, "smoke_plan", plan)
    Engine.done, Engine.fails = [], ""


def plan(target, expectation, out, **options):
    """Two checks, the first of which may fail."""
    Engine.done.append("smoke")
    assert options["mpi4py"] and expectation.version == "0.28.1"
    failures = ["rank 1 is gone"] if Engine.fails == "smoke" else []
    checks = [Check("mpirun"), Check("horovodrun")]
    checks[0].fail(*failures)
    return [(check.name, lambda check=check: check) for check in checks]


def run(last="report", **options):
    return pipeline.run(environment.load(NAME), Options(engine="pip", **options), last)


def report(engine="pip"):
    return RunReport.load(paths.state() / "reports" / f"{NAME}-{engine}" / "report.json")


def test_a_run_goes_through_all_stages():
    outcome = run(jobs=3, python="/site/bin/python", fresh=True)
    assert Engine.done == ["setup", "concretize", "build", "record", "smoke"]
    assert outcome.engine.options == {"jobs": 3, "python": "/site/bin/python", "fresh": True}
    assert outcome.built == built.find(NAME, "pip")
    assert [check["name"] for check in outcome.checks] == ["mpirun", "horovodrun"]
    written = report()
    assert [(each.name, each.status) for each in written.stages] == [(n, "ok") for n in STAGES]
    steps = [step.name for step in written.stages[2].steps]
    assert steps == ["build", "activation", "bill of materials"]
    assert written.versions == {"Horovod": "0.28.1"} and written.tree == "py-horovod@0.28.1"
    assert written.commits["Spack"] == "1" * 40 and len(written.checks) == 2
    bill = components.file(NAME, "pip")
    assert written.bom == str(bill) and bill.is_file()


@pytest.mark.parametrize("last", STAGES)
def test_a_run_ends_with_the_stage_that_is_asked_for(last):
    outcome = run(last)
    done = [name for name in Engine.done if name != "record"]
    assert tuple(done) == STAGES[: STAGES.index(last) + 1]
    assert (outcome.solution is None) == (last == "setup")
    assert built.file(NAME, "pip").exists() == bool(outcome.built) == (last in STAGES[2:])
    # a report is that of a run with a smoke test
    assert (paths.state() / "reports").exists() == (last == "smoke")


@pytest.mark.parametrize(
    ("fails", "stage", "status"),
    [
        ("setup", "setup", 10),
        ("concretize", "concretize", 11),
        ("build", "build", 12),
        ("record", "build", 12),
        ("smoke", "smoke", 13),
    ],
)
def test_a_failure_ends_the_run_and_the_next_one_finishes_it(fails, stage, status):
    Engine.fails = fails
    with pytest.raises(StageFailed) as caught:
        run()
    assert caught.value.status == status and Engine.done[-1] == fails
    position = STAGES.index(stage)
    written = report()
    assert [(each.name, each.status) for each in written.stages] == [
        *((name, "ok") for name in STAGES[:position]),
        (stage, "failed"),
    ]
    assert [step.status for step in written.stages[-1].steps].count("failed") == 1
    # it says as much as is known
    assert bool(written.tree) == bool(written.versions) == bool(written.commits) == (position > 1)
    assert bool(written.bom) == bool(written.checks) == (stage == "smoke")
    if stage == "smoke":
        assert "rank 1 is gone" in caught.value.error.message
        assert [check["passed"] for check in written.checks] == [False, True]
    assert built.file(NAME, "pip").exists() == (stage == "smoke")

    Engine.done, Engine.fails = [], ""
    # the record of an earlier build is replaced
    assert run().built == built.find(NAME, "pip")
    assert Engine.done == ["setup", "concretize", "build", "record", "smoke"]
    assert {stage.status for stage in report().stages} == {"ok"}


def test_an_interrupted_run_leaves_a_report(monkeypatch):
    def interrupt(self, run):
        raise KeyboardInterrupt

    monkeypatch.setattr(Solution, "build", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert report().stages[-1].status == "failed" and not built.file(NAME, "pip").exists()


def test_a_run_that_cannot_begin_does_nothing():
    with lock.exclusive(paths.state() / "lock"), pytest.raises(HvdError, match="another"):
        run()
    assert Engine.done == [] and not (paths.state() / "reports").exists()


@pytest.mark.parametrize(
    ("name", "engine", "pair", "by_pip"),
    [
        (NAME, "auto", "", True),
        (NAME, "spack", "", False),
        (NAME, "auto", "spack-1.1", False),
        ("perlmutter-hvd", "auto", "", False),
    ],
)
def test_pip_builds_where_there_is_no_spack_and_none_was_asked_for(
    monkeypatch, name, engine, pair, by_pip
):
    def locate(sources, task):
        raise HvdError("there is no Spack")

    monkeypatch.setattr(engine_spack, "locate", locate)
    options = Options(engine=engine, sources=Sources(pair=pair))
    if by_pip:
        outcome = pipeline.run(environment.load(name), options, "smoke")
        assert isinstance(outcome.engine, Engine)
        (step, *_) = report().stages[0].steps
        assert (step.name, step.status) == ("Spack and its packages", "skipped")
    else:
        with pytest.raises(StageFailed) as caught:
            pipeline.run(environment.load(name), options, "setup")
        assert caught.value.status == 10 and Engine.done == []


@pytest.mark.parametrize("engine", ["auto", "spack"])
def test_spack_builds_where_there_is_one(monkeypatch, workplace, engine):
    spack = Spack(workplace, workplace / "packages", pinned().pairs[0], {})
    monkeypatch.setattr(engine_spack, "locate", lambda sources, task: spack)
    subject = environment.load("perlmutter-hvd")
    outcome = pipeline.run(subject, Options(engine=engine, jobs=2), "setup")
    assert outcome.engine == SpackEngine(subject, spack, jobs=2)
