"""Rehearsals: what a site's files declare, stand-ins, the namespace, roots, and results."""

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
from hvd.model import environment, site
from tests import debian_root, declared, namespace, needs
from tests.rehearsal import rehearsal, result, stand_ins, steps
from tests.rehearsal.steps import FAILED, NOT_SHOWN, PASSED, StepResult

STAMPEDE3 = "stampede3-cpu-hvd"


@pytest.mark.parametrize("name", environment.of_sites())
def test_the_files_of_each_site_agree(name):
    found = {each.package: each for each in declared.read(environment.load(name))}
    assert {"gcc", "python"} <= {*found} and {*found} & {*stand_ins.MPIS, "spectrum-mpi"}
    if name == STAMPEDE3:
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
def test_files_that_contradict_each_other(tmp_path, monkeypatch, name, old, new, key):
    sites = tmp_path / "environments"
    shutil.copytree(paths.ENVIRONMENTS, sites, symlinks=True)
    file = sites / "sites" / environment.load(name).site / "packages.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    monkeypatch.setenv("HVD_SITES", str(sites))
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
    monkeypatch.setattr(stand_ins, "python", lambda series: series)
    monkeypatch.setattr(process, "output", lambda python, *words: python)
    found = [
        declared.Declared("python", "3.12.3", "/p"),
        declared.Declared("py-torch", "2.8", "/p"),
    ]
    if expected is None:
        with pytest.raises(stand_ins.Lacking, match="no wheels for Python 3.12"):
            stand_ins.frameworks(found, gpu)
    else:
        _, version, requirements = stand_ins.frameworks(found, gpu)
        assert (version, *requirements) == expected


@needs.programs("bwrap")
def test_a_place_is_seen_inside_alone(tmp_path):
    (tmp_path / "file").write_text("a stand-in")
    place = "/opt/hvd-test-of-rehearse/1.0"
    lines = f"cat {place}/file && ls {paths.ROOT}/hvd /usr/bin/env /opt && ! ls /usr/bin/yes"
    places = {place: tmp_path, "/usr/bin/yes": None}
    command = [*namespace.words(places), "--", "sh", "-c", lines]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("a stand-in"), done.stderr
    assert subprocess.run(["test", "-e", "/opt/hvd-test-of-rehearse"]).returncode == 1


@pytest.mark.skipif(platform.machine() != "x86_64", reason="for x86_64, other roots are foreign")
@pytest.mark.parametrize(
    "name, root",
    [
        ("perlmutter-hvd", None),
        ("jupiter-hvd", "trixie-arm64"),
        ("vista-hvd", "bookworm-arm64"),
        ("summit-hvd", stand_ins.Lacking),
        ("taurus-ml-hvd", stand_ins.Lacking),
    ],
)
def test_the_root_has_the_processor_and_python_of_the_site(tmp_path, monkeypatch, name, root):
    def make(suite):
        (tmp_path / suite / "usr" / "bin").mkdir(parents=True)
        python = {"bookworm": "python3.11", "trixie": "python3.13"}[suite.partition("-")[0]]
        (tmp_path / suite / "usr" / "bin" / python).touch()
        return tmp_path / suite

    monkeypatch.setattr(debian_root, "make", make)
    chosen = environment.load(name)
    if root is stand_ins.Lacking:
        with pytest.raises(root, match="ppc64le in ci/versions.yaml has Python 3"):
            rehearsal.foreign_root(chosen, declared.read(chosen))
    else:
        assert rehearsal.foreign_root(chosen, declared.read(chosen)) == root


def rehearsed(*taken: StepResult) -> result.Result:
    files = result.digest(environment.load(STAMPEDE3))
    return result.Result(STAMPEDE3, "2026-11-25", "spack-1.2", files, "", {}, list(taken), "")


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


def test_the_page_is_of_the_results(request):
    if request.config.getoption("--write-results"):
        result.PAGE.write_text(result.page())
    assert result.PAGE.read_text() == result.page(), "./hvd test ... --write-results renews it"


def test_steps_behind_a_failed_build_are_not_shown():
    def fail():
        raise HvdError("no")

    def cannot():
        raise steps.NotShown("no PBS")

    taken = steps.take([("batch job", cannot), ("build", fail), ("kernel", lambda: None)])
    found = [(each.result, each.why) for each in taken]
    assert found == [(NOT_SHOWN, "no PBS"), (FAILED, "no"), (NOT_SHOWN, "build failed")]
