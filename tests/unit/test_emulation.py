"""Roots of other processors: what runs their programs, and what is in them."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

from hvd.core.errors import HvdError
from hvd.host import debian, emulation, machine
from hvd.model.versions import pinned

POWER = emulation.of("bookworm-ppc64el")


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """What a kernel that knows of no other processor has in /proc, mounted."""
    place = tmp_path / "binfmt_misc"
    place.mkdir()
    (place / "register").touch()
    monkeypatch.setattr(emulation, "_BINFMT", place)
    return place


@pytest.fixture
def qemu(tmp_path):
    """A root with QEMU for Power."""
    described = tmp_path / "qemu/usr/lib/binfmt.d/qemu-ppc64le.conf"
    described.parent.mkdir(parents=True)
    described.write_text(":qemu-ppc64le:M::magic:mask:/usr/libexec/ppc64le:OPF\n")
    return tmp_path / "qemu"


def test_every_root_is_of_a_known_processor_and_has_its_native_root():
    for name in pinned().debian:
        release, _, other = name.partition("-")
        foreign = bool(other) and not other.startswith(("rocm-", "qemu"))
        assert foreign == bool(emulation.of(name)), name
        if foreign:
            compilers = {f"g++-{emulation.of(name).triplet}"}
            assert compilers <= set(pinned().debian[release])


def test_an_emulator_of_a_root_is_registered_once(kernel, qemu):
    def appears(path, text, known=pathlib.Path.write_text):
        known(path, text)
        known(kernel / "hvd-ppc64le", "enabled\nflags: POF\n")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pathlib.Path, "write_text", appears)
        emulation.register(POWER, qemu)
    said = f":hvd-ppc64le:M::magic:mask:{qemu}/usr/libexec/ppc64le:OPF"
    assert (kernel / "register").read_text() == said
    (kernel / "register").write_text("")
    emulation.register(POWER, qemu)
    assert (kernel / "register").read_text() == ""


def test_what_cannot_be_emulated_is_an_error_with_the_way_out(kernel, qemu, monkeypatch):
    def refused(command, **_):
        raise subprocess.CalledProcessError(32, command)

    (kernel / "hvd-ppc64le").write_text("disabled\n")
    with pytest.raises(HvdError, match="not enabled") as caught:
        emulation.register(POWER, qemu)
    assert f"{kernel}/hvd-ppc64le" in caught.value.remedy
    (kernel / "register").unlink()
    monkeypatch.setattr(emulation.subprocess, "run", refused)
    with pytest.raises(HvdError, match="programs of ppc64le") as caught:
        emulation.register(POWER, qemu)
    assert "as root" in caught.value.remedy


def test_an_unpacked_root_gets_accounts_libraries_and_links(tmp_path):
    for name in ("passwd.master", "group.master"):
        file = tmp_path / "usr/share/base-passwd" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    (tmp_path / "etc").mkdir()
    programs = tmp_path / "usr/bin"
    programs.mkdir()
    (programs / "mpirun.openmpi").touch()
    emulation.finish(tmp_path, POWER)
    assert (tmp_path / "etc/group").read_text() == "group.master"
    assert (
        "/usr/lib/powerpc64le-linux-gnu/openmpi/lib" in (tmp_path / "etc/ld.so.conf").read_text()
    )
    assert os.readlink(programs / "mpirun") == "mpirun.openmpi"
    local = tmp_path / "usr/local/bin"
    assert os.readlink(local / "c++") == "/native/usr/bin/powerpc64le-linux-gnu-g++"
    assert os.readlink(programs / "awk") == "mawk"
    assert os.readlink(programs / "cmake") == "/native/usr/bin/cmake"
    assert os.access(local / "python3", os.X_OK)
    # again, as an unpacked root may be there already
    emulation.finish(tmp_path, POWER)


def test_a_foreign_command_sees_the_native_root(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(debian.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(debian.subprocess, "call", lambda command: called.append(command) or 0)
    monkeypatch.setattr(debian.emulation, "register", lambda *given: called.append(given))
    debian.run(tmp_path / "bookworm-ppc64el", ["true"], [])
    registered, words = called
    assert registered == (POWER, tmp_path / "trixie-qemu")
    place = words.index("/native")
    assert words[place - 2 : place] == ["--ro-bind", str(tmp_path / "bookworm")]
    assert words[words.index("--setenv") :][:3] == ["--setenv", "PATH", emulation.path()]
    # native tools come first, and serve where the root has none
    directories = emulation.path().split(os.pathsep)
    assert directories[0] == "/usr/local/bin" and directories[-1] == "/native/usr/bin"


@pytest.mark.parametrize(
    ("said", "foreign"), [("ppc64le", "ppc64le"), ("x86_64", ""), ("", ""), ("sun4u", "")]
)
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
