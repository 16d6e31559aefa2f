"""Rehearsals: what a site's files declare, stand-ins, the namespace, and results."""

from __future__ import annotations

import dataclasses
import platform
import shutil
import subprocess

import pytest
from packaging.tags import parse_tag
from packaging.version import Version

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.fetch import python_index
from hvd.matrix import here
from hvd.model import environment, site
from hvd.rehearse import declared, inside, namespace, result, stand_ins
from hvd.rehearse.result import FAILED, NOT_SHOWN, PASSED, Result, StepResult
from tests import needs

STAMPEDE3 = "stampede3-cpu-hvd"


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A function that changes words of a site's packages.yaml in a copy of all sites."""

    def plant(name: str, old: str, new: str) -> None:
        sites = tmp_path / "environments"
        shutil.copytree(paths.ENVIRONMENTS, sites, symlinks=True)
        file = sites / "sites" / name / "packages.yaml"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
        monkeypatch.setenv("HVD_SITES", str(sites))

    return plant


@pytest.mark.parametrize("name", environment.of_sites())
def test_the_files_of_each_site_agree(name):
    found = {each.package for each in declared.read(environment.load(name))}
    assert {"gcc", "python"} <= found and found & {*stand_ins.MPIS, "spectrum-mpi"}


def test_an_environment_has_its_own_frameworks():
    found = {each.package: each for each in declared.read(environment.load(STAMPEDE3))}
    assert found["py-torch"].version == "2.13.0" and "cuda" not in found
    assert found["python"].prefix == found["py-torch"].prefix
    assert found["intel-oneapi-mpi"].module == "impi/21.11"


@pytest.mark.parametrize(
    "name, old, new, key",
    [
        (STAMPEDE3, "prefix: /opt/apps/gcc/13.2.0", "prefix: /opt/apps/gcc13", "gcc"),
        (STAMPEDE3, "prefix: /opt/apps/gcc/13.2.0", "prefix: /opt/apps/gcc/13.1.0", "gcc"),
        (STAMPEDE3, "impi/21.11", "impi/21.9", "intel-oneapi-mpi"),
        ("perlmutter-hvd", "pe/mpich/9.1.0", "pe/mpich/9.0.1", "cray-mpich"),
    ],
)
def test_files_that_contradict_each_other(planted, name, old, new, key):
    planted(environment.load(name).site, old, new)
    with pytest.raises(HvdError, match=f"'packages:{key}'"):
        declared.read(environment.load(name))


@pytest.mark.parametrize(
    "wanted, expected",
    [("13.2.0", "12.2.0"), ("11.2.0", "11.3.0"), ("12.2", "12.2.0"), ("9.1.0", "11.3.0")],
)
def test_the_nearest_version(wanted, expected):
    there = [Version(each) for each in ("11.3.0", "12.1.0", "12.2.0")]
    assert stand_ins.nearest(wanted, there) == Version(expected)


@pytest.mark.parametrize(
    "offered, gpu, expected",
    [
        # any Python, if the wheel is one for CPUs
        (["2.8.0+cpu cp311", "2.8.0 cp312"], False, ("3.11", "torch==2.8.0+cpu")),
        (["2.8.0+cpu cp311", "2.8.0 cp312"], True, ("3.12", "torch==2.8.0")),
        (["2.8.1 cp312", "2.8.0 cp312", "2.9.0 cp312"], False, ("3.12", "torch==2.8.1")),
        (["2.8.0 cp311"], False, None),
        (["2.8.0+cpu cp312"], True, None),
    ],
)
def test_the_wheels_of_a_framework(monkeypatch, offered, gpu, expected):
    def wheels(project):
        for version, interpreter in map(str.split, offered):
            tag = f"{interpreter}-{interpreter}-manylinux_2_28_{platform.machine()}"
            yield Version(version), parse_tag(tag)

    monkeypatch.setattr(python_index, "wheels", wheels)
    monkeypatch.setattr(here, "interpreter", lambda name: name)
    monkeypatch.setattr(process, "output", lambda python, *words: python)
    found = [
        declared.Declared("python", "3.12.3", "/p"),
        declared.Declared("py-torch", "2.8", "/p"),
    ]
    if expected is None:
        with pytest.raises(stand_ins.Lacking, match="no wheels for Python 3.12"):
            stand_ins.frameworks(found, gpu)
    else:
        chosen = stand_ins.frameworks(found, gpu)
        assert (chosen.version, *chosen.requirements) == expected


@needs.programs("bwrap")
def test_a_place_is_seen_inside_alone(tmp_path):
    (tmp_path / "file").write_text("a stand-in")
    place = "/opt/hvd-test-of-rehearse/1.0"
    lines = f"cat {place}/file && ls {paths.ROOT}/hvd /usr/bin/env /opt && ! ls /usr/bin/yes"
    places = {place: tmp_path, "/usr/bin/yes": None}
    command = [*namespace.words(places), "--", "sh", "-c", lines]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("a stand-in"), done.stderr
    assert not (tmp_path.parent / place.lstrip("/")).exists()
    assert subprocess.run(["test", "-e", "/opt/hvd-test-of-rehearse"]).returncode == 1


def rehearsed(*steps: StepResult) -> Result:
    chosen = environment.load(STAMPEDE3)
    files = result.digest(chosen)
    return Result(STAMPEDE3, "2026-11-25", "spack-1.2", files, "", {}, list(steps), "")


def test_a_result_passes_if_it_was_built_and_nothing_failed():
    built, unseen = StepResult("build", PASSED, 1.0), StepResult("job", NOT_SHOWN, 0.0, "why")
    assert rehearsed(built, unseen).passed
    assert not rehearsed(built, StepResult("job", FAILED, 1.0)).passed
    assert not rehearsed(unseen).passed


def test_a_result_is_of_the_files_as_they_are(tmp_path):
    chosen = environment.load(STAMPEDE3)
    there = dataclasses.replace(chosen, directory=tmp_path)
    shutil.copy(chosen.directory / "spack.yaml", tmp_path)
    assert result.stale(there, "2026-11-25")
    done = rehearsed(StepResult("build", PASSED, 1.0))
    result.save(result.file(there), done)
    assert result.load(result.file(there)) == done
    assert not result.stale(there, "2026-11-25")
    assert result.stale(there, "2026-11-26")
    (tmp_path / "spack.yaml").write_text("spack: {specs: [py-horovod]}")
    assert result.stale(there, "2026-11-25")
    result.save(result.file(there), dataclasses.replace(done, steps=[]))
    assert result.stale(there, "2026-11-25")


def test_what_is_checked_by_rehearsal_has_a_result_that_passed():
    wrong = {}
    for name in environment.of_sites():
        checked = site.of(name).environments[name].checked
        if checked.by == "rehearsal":
            reason = result.stale(environment.load(name), checked.date)
            wrong.update({name: reason} if reason else {})
    assert not wrong


def test_steps_behind_a_failed_build_are_not_shown(monkeypatch):
    def fail():
        raise HvdError("no")

    def cannot():
        raise inside.NotShown("no PBS")

    steps = [("batch job", cannot), ("build", fail), ("kernel", lambda: None)]
    rehearsal = inside.Rehearsal(None, None, {})
    monkeypatch.setattr(inside.Rehearsal, "steps", lambda self: steps)
    found = [(each.result, each.why) for each in inside.run(rehearsal)]
    assert found == [(NOT_SHOWN, "no PBS"), (FAILED, "no"), (NOT_SHOWN, "build failed")]
