"""stamp: what is half made is not taken for whole."""

import shutil

import pytest

from hvd.core import stamp


def test_no_stamp_or_another_one_means_do_it_again(tmp_path):
    file = tmp_path / "deep" / "stamp"
    digest = stamp.of("torch==2.13.0")
    assert not stamp.matches(file, digest)
    stamp.put(file, digest)
    assert stamp.matches(file, digest)
    assert not stamp.matches(file, stamp.of("torch==2.12.0"))


def test_what_is_half_removed_has_no_stamp(tmp_path, monkeypatch):
    def killed(directory):
        raise KeyboardInterrupt

    stamp.put(tmp_path / "stamp", stamp.of("torch==2.13.0"))
    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        stamp.clear(tmp_path)
    assert not stamp.matches(tmp_path / "stamp", stamp.of("torch==2.13.0"))


def test_contents_and_names_of_files_count(tmp_path):
    directory = tmp_path / "recipe"
    directory.mkdir()
    (directory / "a.patch").write_text("1")
    first = stamp.of(directory)
    (directory / "a.patch").write_text("2")
    second = stamp.of(directory)
    (directory / "a.patch").rename(directory / "b.patch")
    assert len({first, second, stamp.of(directory)}) == 3


def test_what_python_and_spack_leave_does_not_count(tmp_path):
    first = stamp.of(tmp_path)
    for name in ("__pycache__", ".spack-env"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("x")
    assert stamp.of(tmp_path) == first
