"""The report's data: their file, and how it is read and written."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from hvd.core.errors import HvdError
from hvd.core.steps import Stage, Step
from hvd.model.dag import DagNode
from hvd.report.model import SCHEMA, RunReport


def full() -> RunReport:
    """A report in which no field has its default."""
    return RunReport(
        environment="local-hvd",
        engine="spack",
        started="2026-01-31T08:15:00Z",
        specs=["py-horovod@0.28.1 +mpi"],
        versions={"Horovod": "0.28.1"},
        host={"os": "Debian 12", "cores": 2, "memory": 8 * 2**30},
        dag=[
            DagNode("py-horovod", "0.28.1", "+mpi", "abcdefg", False, "/opt/h", ["mpi"], "linux"),
            DagNode("mpi", "4.1.8", external=True, prefix="/usr"),
        ],
        stages=[
            Stage("build", "failed", 3.5, [Step("py-horovod", "failed", 3.25, "/log", "no cmake")])
        ],
        checks=[{"name": "mpirun", "passed": False, "failures": ["rank 1 died"]}],
        build_times=[{"engine": "spack", "seconds": 4.5, "ratio": 1.5, "note": ""}],
    )


def edited(path: pathlib.Path, **changes) -> pathlib.Path:
    """``path``, written with a full report of which some keys are changed."""
    full().save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path


def test_what_was_saved_is_loaded(tmp_path):
    path = tmp_path / "not" / "there yet" / "report.json"
    full().save(path)
    assert RunReport.load(path) == full()


def test_a_path_is_saved_as_its_name(tmp_path):
    report = full()
    report.checks[0]["log"] = pathlib.Path("/logs/mpirun")
    report.save(tmp_path / "report.json")
    assert RunReport.load(tmp_path / "report.json").checks[0]["log"] == "/logs/mpirun"


@pytest.mark.parametrize(
    "changes, key",
    [
        ({"schema": SCHEMA + 1}, "schema"),
        ({"schema": None}, "schema"),
        ({"stages": [{"name": "build", "seconds": "long"}]}, "stages[0].seconds"),
        ({"stages": [{"name": "build", "status": "fine"}]}, "stages[0]"),
        ({"stages": [{"status": "ok"}]}, "name"),
        ({"stages": [7]}, "stages[0]"),
        ({"versions": []}, "versions"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_key_that_does_not_fit_is_named(tmp_path, changes, key):
    path = edited(tmp_path / "report.json", **changes)
    with pytest.raises(HvdError) as caught:
        RunReport.load(path)
    assert str(path) in caught.value.message and key in caught.value.message
    assert "./hvd run" in caught.value.remedy


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b'{"schema": 1', b"\xff\xfe\x00", b"[]", b"{}"]
)
def test_a_missing_or_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "report.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HvdError) as caught:
        RunReport.load(path)
    assert str(path) in caught.value.message
    assert "./hvd run" in caught.value.remedy


def test_an_unknown_status_is_refused():
    with pytest.raises(ValueError, match="'fine'"):
        Step("py-horovod", "fine")


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, function):
    path = tmp_path / "report.json"
    full().save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    newer = full()
    newer.environment = "other"
    with pytest.raises(HvdError, match="No space left on device") as caught:
        newer.save(path)
    assert str(path) in caught.value.message
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]  # and no temporary file
