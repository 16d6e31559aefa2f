"""Rehearsals for another processor: which root, and what runs in it."""

from __future__ import annotations

import platform

import pytest

from hvd.core.errors import HvdError
from hvd.host import debian, emulation, machine
from hvd.model import environment
from hvd.model.versions import pinned
from hvd.rehearse import (
    cluster,
    declared,
    emulated,
    inside,
    module_tools,
    rehearsal,
    result,
    stand_ins,
)

JUPITER = "jupiter-hvd"
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="for x86_64 it emulates")


@pytest.fixture
def roots(tmp_path, monkeypatch):
    """Roots with a Python each, made of nothing; yields their names in the order they are made."""
    made = []
    pythons = {"bookworm": "python3.11", "trixie": "python3.13"}

    def make(suite, log):
        place = tmp_path / "cache" / suite
        (place / "usr" / "bin").mkdir(parents=True)
        (place / "usr" / "bin" / pythons[suite.partition("-")[0]]).touch()
        made.append(suite)
        return place

    monkeypatch.setattr(debian, "root", make)
    return made


def test_a_family_that_is_not_this_machine_s_is_emulated():
    assert emulated.is_needed(environment.load(JUPITER))
    assert not emulated.is_needed(environment.load("perlmutter-hvd"))
    assert emulated.family(environment.load("summit-hvd")) == "ppc64le"


@pytest.mark.parametrize(
    "name, root", [(JUPITER, "trixie-arm64"), ("vista-hvd", "bookworm-arm64")]
)
def test_the_root_has_the_python_of_the_site(roots, tmp_path, name, root):
    chosen = environment.load(name)
    place = emulated.root(chosen, declared.read(chosen), tmp_path / "log")
    assert place.name == root == roots[-1]
    assert set(roots) <= {each for each in pinned().debian if emulation.of(each)}


@pytest.mark.parametrize("name", ["summit-hvd", "summit-ddl-hvd", "taurus-ml-hvd"])
def test_without_such_a_python_nothing_is_shown(roots, tmp_path, name):
    chosen = environment.load(name)
    with pytest.raises(stand_ins.Lacking, match="ppc64le in ci/versions.yaml has Python 3"):
        emulated.root(chosen, declared.read(chosen), tmp_path / "log")
    assert roots == ["bookworm-ppc64el"]


def test_what_has_no_stand_in_is_skipped_and_has_not_failed(roots, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rehearsal, "directory", lambda name: tmp_path / name)
    done = rehearsal.run("taurus-ml-hvd")
    assert result.counts(done) == (0, 0, 1)
    out, err = capsys.readouterr()
    (line,) = [each for each in out.splitlines() if "a root for ppc64le" in each]
    assert "skipped  no root for ppc64le in ci/versions.yaml has Python 3" in line
    assert not err


def test_a_root_that_cannot_be_made_is_a_failure(tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise HvdError("mmdebstrap failed")

    monkeypatch.setattr(rehearsal, "directory", lambda name: tmp_path / name)
    monkeypatch.setattr(debian, "root", fail)
    assert result.counts(rehearsal.run("taurus-ml-hvd")) == (0, 1, 0)
    out, err = capsys.readouterr()
    assert "failed" in out and "mmdebstrap failed" in err


def test_it_runs_in_the_root_with_what_runs_natively_there(tmp_path, monkeypatch):
    place, chosen = tmp_path / "root", environment.load(JUPITER)
    monkeypatch.setattr(debian, "state", lambda root: tmp_path / "state")
    native = []
    monkeypatch.setattr(module_tools, "install", native.append)
    monkeypatch.setattr(cluster, "unpack", lambda: native.append("slurm"))
    file = tmp_path / "state" / "rehearsals" / JUPITER / "result.json"
    steps = [result.StepResult("build", result.PASSED, 1.0)]
    done = result.Result(JUPITER, "2026-11-25", "spack-1.2", "", "", {}, steps, "")

    def rehearse(root, command, binds):
        assert root == place and command[-2:] == ["rehearse", JUPITER] and not binds
        assert native == ["lmod", "slurm"] and not file.exists()
        result.save(file, done)
        return 0

    monkeypatch.setattr(debian, "run", rehearse)
    file.parent.mkdir(parents=True)
    file.write_text("of the last time")
    assert emulated.run(chosen, place) == done
    native.clear()
    monkeypatch.setattr(debian, "run", lambda *_: 1)
    with pytest.raises(HvdError, match="interrupted"):
        emulated.run(chosen, place)


def test_a_user_s_path_has_the_native_tools_where_programs_are_emulated(monkeypatch, tmp_path):
    plan = inside.Plan(JUPITER, [], "openmpi", "", "", [], {}, str(tmp_path), "spack-1.2", False)
    rehearsal = inside.Rehearsal(plan, tmp_path / "log", {})
    assert "/native" not in rehearsal.path
    monkeypatch.setattr(machine, "foreign", lambda: "aarch64")
    assert rehearsal.path == emulation.path()


@pytest.mark.parametrize("mpi, program", [("openmpi", "srun"), ("impi", "mpiexec.hydra")])
def test_ibrun_starts_what_the_mpi_is_started_with(mpi, program):
    assert inside.ibrun(mpi).split()[0] == program
