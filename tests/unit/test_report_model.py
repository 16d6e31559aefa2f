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


def test_whole_seconds_are_seconds(tmp_path):
    stage = {"name": "build", "status": "ok", "seconds": 3, "steps": []}
    loaded = RunReport.load(edited(tmp_path / "report.json", stages=[stage]))
    assert isinstance(loaded.stages[0].seconds, float)


def test_a_path_is_saved_as_its_name(tmp_path):
    report = full()
    report.checks[0]["log"] = pathlib.Path("/logs/mpirun")
    report.save(tmp_path / "report.json")
    assert RunReport.load(tmp_path / "report.json").checks[0]["log"] == "/logs/mpirun"


@pytest.mark.parametrize("schema", [SCHEMA + 1, None, "1", [1]])
def test_another_schema_is_refused(tmp_path, schema):
    path = edited(tmp_path / "report.json", schema=schema)
    with pytest.raises(HvdError) as caught:
        RunReport.load(path)
    assert str(path) in caught.value.message
    assert f"schema {schema!r}" in caught.value.message
    assert "./hvd run" in caught.value.remedy


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": 1', b"\xff\xfe\x00", b"[]", b"{}"])
def test_a_damaged_file_is_refused(tmp_path, content):
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(HvdError) as caught:
        RunReport.load(path)
    assert str(path) in caught.value.message
    assert "./hvd run" in caught.value.remedy


@pytest.mark.parametrize("length", range(0, 1000, 50))
def test_a_truncated_file_is_refused(tmp_path, length):
    path = tmp_path / "report.json"
    full().save(path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(HvdError, match="valid JSON"):
        RunReport.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(HvdError, match="report.json: No such file"):
        RunReport.load(tmp_path / "report.json")


STAGE = {"name": "build", "status": "ok", "seconds": 3.0, "steps": []}


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"stages": [{**STAGE, "seconds": "long"}]}, r"stages\[0\].seconds: 'long' is no float"),
        ({"stages": [{**STAGE, "status": "fine"}]}, r"stages\[0\].status: .*'fine' is none of"),
        ({"stages": [{"name": "build"}]}, r"stages\[0\].status: missing"),
        ({"stages": [7]}, r"stages\[0\]: 7 is no object"),
        ({"stages": {}}, r"stages: \{\} is no list"),
        ({"versions": {"Horovod": 28}}, r"versions.Horovod: 28 is no str"),
        ({"colour": "red"}, r"colour: no such key"),
    ],
)
def test_what_does_not_fit_is_named_by_its_key(tmp_path, changes, complaint):
    path = edited(tmp_path / "report.json", **changes)
    with pytest.raises(HvdError, match=complaint) as caught:
        RunReport.load(path)
    assert str(path) in caught.value.message


def test_an_unknown_status_is_no_status():
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
