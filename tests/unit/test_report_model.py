"""The file of a report: written whole, and refused if it is damaged."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from hvd.core.errors import HvdError
from hvd.report.model import SCHEMA, RunReport

CHECK = {"name": "mpirun", "passed": True, "log": pathlib.Path("/logs/mpirun")}


@pytest.fixture
def kept(tmp_path) -> pathlib.Path:
    """The file of a report."""
    path = tmp_path / "new" / "report.json"
    RunReport("local-hvd", "spack", "2026-01-31T08:15:00Z", checks=[CHECK]).save(path)
    return path


def test_a_path_is_saved_as_its_name(kept):
    assert RunReport.load(kept).checks[0]["log"] == "/logs/mpirun"


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
        ({"stages": [{"name": "setup", "status": "fine"}]}, "status"),
    ],
)
def test_a_key_that_does_not_fit_is_named(kept, changes, key):
    kept.write_text(json.dumps({**json.loads(kept.read_text()), **changes}))
    with pytest.raises(HvdError) as caught:
        RunReport.load(kept)
    assert str(kept) in caught.value.message and key in caught.value.message
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


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(kept, monkeypatch, function):
    before = kept.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(HvdError, match="No space left on device") as caught:
        RunReport("other", "spack", "now").save(kept)
    assert str(kept) in caught.value.message
    assert kept.read_bytes() == before
    assert list(kept.parent.iterdir()) == [kept]  # and no temporary file
