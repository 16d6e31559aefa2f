"""The Spack engine with a stand-in for Spack; tests/spack and tests/build have a real one."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys

import pytest
import yaml

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.options import Sources
from hvd.core.run import Run, StageFailed
from hvd.engines.engine_spack import SpackEngine, pair_of
from hvd.fetch import clone
from hvd.host import framework
from hvd.model import environment
from hvd.model.built import Modification, Software
from hvd.model.versions import Pair, Pin, pinned
from hvd.solve import location, queries
from tests.checkout import commit
from tests.unit.building import (
    BUILT,
    LOCK,
    VARIANTS,
    FakeSpack,
    interpreter,
    pytorch_environment,
)

PRUNED = ["prune", "concretize"]
SOURCE = {"name": "py-horovod", "version": "0.28.1", "url": "file:///x", "sha256": "", "path": "x"}
PINNED, *_, OLD = pinned().pairs


@pytest.fixture
def fake(workplace, state):
    state.mkdir()
    return FakeSpack(workplace / "spack")


@pytest.fixture
def subject(fake):
    return pytorch_environment()


def stage(engine, name, work):
    """The steps of a stage: name and status; and what ``work`` returned or raised."""
    run = Run(engine.environment.name, engine.name)
    try:
        with run.stage(name) as made:
            result = work(run)
    except StageFailed as failure:
        result = failure
    return [(step.name, step.status) for step in made.steps], result


def concretize(engine):
    return stage(engine, "concretize", lambda run: engine.concretize(run, interpreter("torch")))


def test_setup_uses_the_compilers_of_the_machine_and_fails_without_one(fake, subject, monkeypatch):
    monkeypatch.setattr(framework, "provide", lambda run, subject, python: interpreter("torch"))
    engine = SpackEngine(subject, fake.spack, jobs=3)
    assert stage(engine, "setup", engine.setup)[1] == interpreter("torch")
    assert (
        yaml.safe_load((fake.spack.scope / "config.yaml").read_text())["config"]["build_jobs"] == 3
    )
    tools = yaml.safe_load((fake.spack.state / "tools" / "packages.yaml").read_text())
    assert tools["packages"] == {n: {"buildable": False} for n in ("c", "cxx", "fortran", "gcc")}
    fake.let(compiler=False)
    steps, failure = stage(engine, "setup", engine.setup)
    assert steps[-1] == ("compilers and build tools", "failed") and failure.status == 10


@pytest.mark.parametrize("changed", ["spack.yaml", "packages.yaml", "spack.lock", "pair", ""])
def test_an_environment_is_solved_again_when_an_input_has_changed(fake, subject, changed):
    engine = SpackEngine(subject, fake.spack)
    steps, solution = concretize(engine)
    assert steps == [("spack concretize", "ok")] and fake.commands() == PRUNED
    assert solution.specs == LOCK and pair_of(subject) == fake.spack.pair.name
    view = subject.directory / ".spack-env" / "view"
    view.mkdir(parents=True)
    if changed == "pair":
        engine = SpackEngine(subject, dataclasses.replace(fake.spack, pair=OLD))
    elif changed:
        directory = fake.spack.scope if changed == "packages.yaml" else subject.directory
        directory.mkdir(exist_ok=True)
        with open(directory / changed, "a") as stream:
            stream.write("\n")
    steps, again = concretize(engine)
    assert steps == [("spack concretize", "ok" if changed else "cached")]
    assert fake.commands() == (PRUNED if changed else [])
    assert changed or again == solution
    # what another Spack made is forgotten
    assert view.exists() == (changed != "pair") and pair_of(subject) == engine.spack.pair.name


def test_fresh_takes_nothing_from_spacks_cache_of_solutions(fake, subject):
    uncached = "concretizer:concretization_cache:enable:false"
    for fresh in (False, True):
        concretize(SpackEngine(subject, fake.spack, fresh=fresh))
        _, words = fake.calls()
        assert (uncached in words) == fresh


@pytest.mark.parametrize("word", ["python", "concretize"])
def test_a_solve_that_failed_is_done_again(fake, subject, word):
    engine = SpackEngine(subject, fake.spack)
    fake.let(fails=word)
    steps, failure = concretize(engine)
    assert steps == [("spack concretize", "failed")] and failure.status == 11
    assert "it fails" in failure.error.log.read_text() and not subject.lockfile.exists()
    fake.let(fails="")
    assert concretize(engine)[0] == [("spack concretize", "ok")]


def test_a_solution_that_is_not_the_sites_is_not_kept_as_solved(fake, workplace):
    """Nothing of it is taken for granted by the next run."""
    chosen = dataclasses.replace(environment.load("perlmutter-hvd"), directory=workplace / "site")
    chosen.directory.mkdir()
    (chosen.directory / "spack.yaml").write_text("")
    for _ in range(2):
        steps, failure = concretize(SpackEngine(chosen, fake.spack))
        assert steps == [("spack concretize", "failed")] and fake.commands() == PRUNED
        assert "os=debian12, not sles15" in failure.error.message


def test_a_lock_that_is_none_is_named(fake, subject):
    subject.lockfile.write_text("{}")
    with pytest.raises(HvdError, match="spack.lock"):
        SpackEngine(subject, fake.spack).solution()


@pytest.mark.parametrize(
    ("fresh", "source", "fails", "statuses"),
    [
        (False, {}, "", {"sources": "ok", "install": "cached"}),
        (True, SOURCE, "", {"uninstall": "ok", "sources": "ok", "install": "ok"}),
        (False, SOURCE, "install", {"sources": "ok", "install": "failed"}),
        # one without a checksum is not fetched
        (False, {**SOURCE, "url": "https://127.0.0.1:9/x.tar.gz"}, "", {"sources": "failed"}),
    ],
)
def test_a_build(fake, subject, fresh, source, fails, statuses):
    engine = SpackEngine(subject, fake.spack, fresh=fresh)
    _, solution = concretize(engine)
    fake.calls()
    fake.let(sources=[source] if source else [], fails=fails)
    steps, failure = stage(engine, "build", solution.build)
    assert [status for _, status in steps] == [*statuses.values()]
    assert fake.commands() == [*statuses]
    assert steps[-1][1] != "failed" or failure.status == 12


def test_what_a_killed_run_has_unpacked_in_part_is_not_taken_for_the_whole(fake, subject):
    engine = SpackEngine(subject, fake.spack)
    _, solution = concretize(engine)
    fake.let(sources=[SOURCE])
    for name in ("py-horovod-0.28.1-abc", "other-1.0-abc"):
        (fake.spack.stages / f"spack-stage-{name}" / "spack-src").mkdir(parents=True)
    stage(engine, "build", solution.build)
    assert [each.name for each in fake.spack.stages.iterdir()] == ["spack-stage-other-1.0-abc"]


def record(engine):
    """The record of a build and its parts, or how it failed."""
    _, solution = concretize(engine)

    def work(run):
        with run.step("activation") as task:
            return solution.record(task)

    return stage(engine, "build", work)[1]


CUDA = {"mpi": False, "cuda": True, "cuda_arch": ["80", "90"], "nccl": True}
ROCM = {"rocm": True, "amdgpu_target": "gfx90a", "gpu_ops": "mpi", "nccl": False}


@pytest.mark.parametrize(
    ("variants", "operations", "gpu", "architectures", "nccl_link", "gpu_mpi"),
    [
        (CUDA, ("gloo", "nccl"), "cuda", ("80", "90"), "shared", False),
        (ROCM, ("gloo", "mpi"), "rocm", ("gfx90a",), "", True),
    ],
)
def test_the_record_of_a_build(
    fake, subject, variants, operations, gpu, architectures, nccl_link, gpu_mpi
):
    fake.let(lock={**LOCK, "a": {**LOCK["a"], "parameters": {**VARIANTS, **variants}}})
    done, parts = record(SpackEngine(subject, fake.spack))
    assert (done.gpu, done.architectures) == (gpu, architectures)
    assert (done.nccl_link, done.gpu_mpi, done.operations) == (nccl_link, gpu_mpi, operations)
    assert done.controllers == tuple(n for n in operations if n in ("gloo", "mpi"))
    assert (done.environment, done.engine, done.version) == (subject.name, "spack", "0.28.1")
    assert done.frameworks == {"pytorch": "2.13.0"} and done.python == "3.8.18"
    assert done.compiler == Software("gcc", "12.2.0") and done.mpi == Software("openmpi", "4.1.8")
    assert done.changes == (Modification("prepend", "PATH", "/opt/bin"),)
    assert done.modules == ("openmpi/4",)
    assert {part.name for part in parts if part.external} == {"python", "py-torch"}


def test_a_change_that_no_module_can_take_back_is_refused(fake, subject):
    fake.let(built={**BUILT, "other": ["RemovePath LD_PRELOAD"]})
    failure = record(SpackEngine(subject, fake.spack))
    assert failure.status == 12 and "LD_PRELOAD" in failure.error.message


@pytest.fixture
def cached(workplace, monkeypatch):
    """Clones that are made at once; the addresses that they are from, by what they are."""
    made = {}

    def ensure(address, pin, destination, log):
        made[destination.parent.name] = (address, pin)
        destination.mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(clone, "ensure", ensure)
    monkeypatch.setenv("SPACK_ROOT", "")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return made


@pytest.mark.parametrize(
    ("pair", "addresses"),
    [(PINNED, ()), (OLD, ("https://x/spack.git", "https://x/packages.git"))],
)
def test_the_pinned_spack_is_cloned_from_its_address(cached, workplace, addresses, pair):
    wanted = "" if pair == PINNED else pair.name
    sources = Sources(*addresses, compiler_wrapper="https://x/wrapper.git", pair=wanted)
    found = location.locate(sources, workplace / "log")
    assert found.pair == pair and pair.spack.commit in str(found.root)
    spack, packages = addresses or (pinned().git["spack"], pinned().git["packages"])
    assert cached == {"spack": (spack, pair.spack), "packages": (packages, pair.packages)}
    assert found.addresses["compiler-wrapper"] == sources.compiler_wrapper


RULES = pathlib.Path("lib", "spack", "spack", "solver", "error_messages.lp")


def rules(fixed: bool) -> str:
    """The lines of Spack 1.2 that the fix is about, at the place where they are in the file."""
    hunk = location.FIX.read_text().partition("@@\n")[2].splitlines()
    lines = [line[1:] for line in hunk if fixed or not line.startswith("+")]
    return "\n".join([*["%"] * 123, *lines, ""])


@pytest.mark.parametrize(
    ("before", "after"), [(rules(fixed=False), rules(fixed=True)), ("% of 1.1\n", "% of 1.1\n")]
)
def test_a_spack_that_is_cloned_is_fixed_once(workplace, tmp_path, monkeypatch, before, after):
    """And only if it needs that; its commit stays what it is."""
    origin = tmp_path / "origin"
    (origin / RULES).parent.mkdir(parents=True)
    (origin / RULES).write_text(before)
    pin = Pin("1.2", commit(origin))
    monkeypatch.setattr(location, "_pair", lambda *_: Pair("pair", pin, pin))
    for _ in range(2):
        found = location.locate(Sources(str(origin), str(origin)), workplace / "log")
        assert (found.root / RULES).read_text() == after
        assert clone.commit(found.root) == pin.commit


@pytest.mark.parametrize("named", [True, False])
def test_a_supported_spack_that_is_there_is_taken(cached, fake, monkeypatch, named):
    monkeypatch.setenv("SPACK_ROOT", str(fake.home))
    sources = Sources(spack=str(fake.home)) if named else Sources()
    found = location.locate(sources, fake.home / "log")
    assert found.root == fake.home and found.pair == PINNED and "spack" not in cached
    # one that is not supported is passed over, unless it is named
    (fake.home / "lib/spack/spack/__init__.py").write_text('__version__ = "0.23.0"\n')
    if named:
        with pytest.raises(HvdError, match="0.23"):
            location.locate(sources, fake.home / "log")
    else:
        assert location.locate(sources, fake.home / "log").root != fake.home


def test_packages_decide_on_the_pair(cached, fake, monkeypatch):
    checkout = fake.home / "packages"
    (checkout / "repos/spack_repo/builtin").mkdir(parents=True)
    sources = Sources(packages=str(checkout))
    monkeypatch.setattr(clone, "commit", lambda directory: OLD.packages.commit)
    found = location.locate(sources, fake.home / "log")
    assert found.pair == OLD and found.packages == checkout
    contradiction = Sources(spack=str(fake.home), pair=OLD.name)
    monkeypatch.setattr(clone, "commit", lambda directory: "f" * 40)
    for wrong, named in ((sources, "ffffffffffff"), (contradiction, OLD.name)):
        with pytest.raises(HvdError, match=named):
            location.locate(wrong, fake.home / "log")


def test_spack_sees_a_centres_sites_and_nothing_that_modules_have_set(
    fake, subject, monkeypatch, tmp_path
):
    """It takes a loaded module for one that cannot be loaded, and its queries a change by Intel
    MPI's vars.sh for none: https://github.com/spack/spack/pull/52752."""
    for name in ("LOADEDMODULES", "_LMFILES_", "_ModuleTable001_", "MODULEPATH", "I_MPI_ROOT"):
        monkeypatch.setenv(name, "impi/21.11")
    monkeypatch.setenv("PATH", f"/opt/impi/bin:{os.environ['PATH']}")
    monkeypatch.setenv("HVD_SITES", "/apps/hvd")
    seen = fake.spack.environment()
    assert not {"LOADEDMODULES", "_LMFILES_", "_ModuleTable001_"} & seen.keys()
    assert seen["MODULEPATH"] == "impi/21.11"
    activated = fake.spack.activation(tmp_path, tmp_path / "log")
    assert activated["SEEN"] == f"/apps/hvd {tmp_path}"
    fake.spack.configure(jobs=1)
    assert "export HVD_SITES=/apps/hvd\n" in (paths.state() / "setup-env.sh").read_text()
    program = f"#!{sys.executable}\nimport json, os\nprint(json.dumps(dict(os.environ)))\n"
    (fake.home / "bin" / "spack").write_text(program)
    asked = fake.spack.ask(subject.directory, queries.BUILT, tmp_path / "log")
    assert "I_MPI_ROOT" not in asked and "impi" not in asked["PATH"]
