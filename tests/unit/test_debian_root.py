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
        return 3

    monkeypatch.setattr(debian_root, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(debian_root, "ROOT", tmp_path / "checkout")
    monkeypatch.setattr(debian_root, "_call", call)
    monkeypatch.setattr(debian_root.subprocess, "call", call)
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


def test_a_command_has_a_venv_of_its_own(called, tmp_path):
    assert debian_root.run("trixie", ["g++", "--version"], ["/etc"]) == 3
    words = called[-1]
    assert words[-3:] == ["--", "g++", "--version"]
    own, checkout = tmp_path / "checkout/.hvd/debian/trixie", tmp_path / "checkout"
    binds = [words[n + 1 : n + 3] for n, word in enumerate(words) if word == "--bind"]
    assert [str(checkout)] * 2 in binds and [str(tmp_path / "cache")] * 2 in binds
    assert [str(own / ".venv"), str(checkout / ".venv")] in binds
    assert [str(own / ".hvd"), str(checkout / ".hvd")] in binds
    assert words[words.index("/etc") - 1 :][:3] == ["--ro-bind", "/etc", "/etc"]


@pytest.mark.parametrize("said, foreign", [("ppc64le", "ppc64le"), ("x86_64", ""), ("", "")])
def test_an_emulated_processor_is_known_by_its_family(monkeypatch, said, foreign):
    monkeypatch.setattr(machine.process, "output", lambda *_: said)
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    machine.foreign.cache_clear()
    try:
        assert machine.foreign() == foreign
        if foreign:
            assert machine.processor() == foreign
    finally:
        machine.foreign.cache_clear()
