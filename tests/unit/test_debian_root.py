"""Roots of other Debian releases and processors: which there are, and what a command sees."""

from __future__ import annotations

import pathlib

import pytest

from hvd.host import machine
from tests import debian_root


@pytest.fixture(autouse=True)
def called(tmp_path, monkeypatch):
    """The commands that are run; mmdebstrap makes an empty root."""
    commands = []

    def call(command, **_):
        commands.append(command)
        if "mmdebstrap" in command[0]:
            (pathlib.Path(command[-1]) / "etc").mkdir(parents=True)

    monkeypatch.setattr(debian_root, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(debian_root, "_call", call)
    return commands


def test_every_root_for_another_processor_has_its_cross_compiler():
    for name in debian_root.ROOTS:
        release, _, other = name.partition("-")
        if debian_root.machine(name):
            triplet = debian_root.PROCESSORS[other][1]
            assert f"g++-{triplet}" in debian_root.ROOTS[release]
        else:
            assert not other or other.startswith(("rocm-", "qemu")), name


def test_a_root_is_made_once_with_the_packages_of_versions_yaml(called):
    place = debian_root.make("sid-rocm-7")
    ((command),) = called
    assert f"--include={','.join(debian_root.ROOTS['sid-rocm-7'])}" in command
    assert any("experimental.list" in word for word in command)
    assert command[-2:] == ["sid", str(place)]
    assert (place / "etc" / "debian_chroot").read_text() == "sid-rocm-7\n"
    debian_root.make("sid-rocm-7")
    assert len(called) == 1
    # one that was left half made
    place.with_name("sid-rocm-7.stamp").unlink()
    debian_root.make("sid-rocm-7")
    assert len(called) == 2
    with pytest.raises(debian_root.RootError, match="no root 'potato'"):
        debian_root.make("potato")


def test_a_command_finds_the_pythons_of_the_home_directory(monkeypatch, called):
    """But not in a root for another processor, which has its own."""
    place = debian_root.make("trixie")
    monkeypatch.setattr(debian_root, "ROOT", place)  # where .venv and .hvd are
    monkeypatch.setattr(debian_root, "make", lambda name: place)
    monkeypatch.setattr(debian_root.subprocess, "call", called.append)
    for name in ("trixie", "bookworm-arm64"):
        debian_root.run(name, ["true"])
    pyenv = str(pathlib.Path.home() / ".pyenv")
    assert [pyenv in command for command in called[-2:]] == [True, False]


@pytest.mark.parametrize("said, foreign", [("ppc64le", "ppc64le"), ("x86_64", ""), ("", "")])
def test_an_emulated_processor_is_known_by_its_family(monkeypatch, said, foreign):
    monkeypatch.setattr(machine.process, "output", lambda *_: said)
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(machine, "foreign", machine.foreign.__wrapped__)
    assert machine.foreign() == foreign
    assert machine.processor() == foreign or not foreign
