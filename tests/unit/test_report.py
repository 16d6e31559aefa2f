"""A report: its file, and the files and pictures that are written of it."""

from __future__ import annotations

import json
import os
import pathlib
import struct

import pytest

from hvd.core.errors import HvdError
from hvd.core.steps import Stage
from hvd.report import RunReport, plot, write_report
from hvd.report.run_report import SCHEMA
from tests.unit.reports import check


def test_every_file_is_written_and_the_same_each_time(tmp_path, report):
    written = write_report(report, tmp_path / "new")
    names = ["report.md", "report.json", "junit.xml", "bandwidth.png", "timings.png"]
    assert [path.name for path in written] == names
    first = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert sorted(first) == sorted(names)
    assert RunReport.load(tmp_path / "new" / "report.json") == report
    assert first == {path.name: path.read_bytes() for path in write_report(report, tmp_path)}


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path, report):
    (tmp_path / "file").write_text("")
    with pytest.raises(HvdError, match="file/report"):
        write_report(report, tmp_path / "file" / "report")


def test_a_path_is_saved_as_its_name(tmp_path, report):
    report.checks = [check("mpirun", log=pathlib.Path("/logs/mpirun"))]
    report.save(tmp_path / "report.json")
    assert RunReport.load(tmp_path / "report.json").checks[0]["log"] == "/logs/mpirun"


@pytest.mark.parametrize(
    "content, key",
    [
        *(
            (content, "")
            for content in (None, b"", b'{"schema": 1', b"\xff\xfe\x00", b"[]", b"{}")
        ),
        ({"schema": SCHEMA + 1}, "schema"),
        ({"stages": [{"name": "build", "seconds": "long"}]}, "stages[0].seconds"),
        ({"stages": [{"name": "build", "status": "fine"}]}, "stages[0]"),
        ({"stages": [7]}, "stages[0]"),
    ],
)
def test_a_damaged_file_and_its_key_are_named(tmp_path, report, content, key):
    path = tmp_path / "report.json"
    report.save(path)
    if content is None:
        path.unlink()
    else:
        changed = isinstance(content, dict)
        whole = {**json.loads(path.read_bytes()), **content} if changed else None
        path.write_bytes(json.dumps(whole).encode() if changed else content)
    with pytest.raises(HvdError) as caught:
        RunReport.load(path)
    assert path.name in caught.value.message and key in caught.value.message
    assert "./hvd run" in caught.value.remedy


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path, report, monkeypatch, function):
    path = tmp_path / "report.json"
    report.save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(HvdError, match="report.json.*No space left on device"):
        RunReport("other", "spack", "now").save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]  # and no temporary file


def test_a_picture_shows_the_data_and_is_linked(tmp_path, report):
    write_report(report, tmp_path)
    for name, height in (("bandwidth.png", 500), ("timings.png", 162)):
        picture = (tmp_path / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert struct.unpack(">II", picture[16:24]) == (800, height)
        assert f"({name})" in (tmp_path / "report.md").read_text()
    report.checks[0]["bandwidth"][0]["bus_mb_s"] *= 100
    assert plot.bandwidth(report) != (tmp_path / "bandwidth.png").read_bytes()


def test_without_data_there_is_no_picture_nor_a_stale_one(tmp_path, report):
    write_report(report, tmp_path)
    for row in report.checks[0]["bandwidth"]:
        row["bus_mb_s"] = 0.0  # that of a single rank
    report.checks[1]["bandwidth"] = []
    report.stages = [Stage("smoke", "ok", 0.0)]
    written = write_report(report, tmp_path)
    assert not [path for path in written if path.suffix == ".png"]
    assert not list(tmp_path.glob("*.png"))
    assert ".png" not in (tmp_path / "report.md").read_text()
