"""A root of another Debian release, and what a command in it sees."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from hvd.core import lock, paths
from hvd.core.errors import HvdError
from hvd.host import debian
from hvd.model.versions import pinned


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """What mmdebstrap and bwrap are called with."""
    called = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(debian.shutil, "which", lambda name: f"/usr/bin/{name}")

    def make(command, **_):
        called.append(list(map(str, command)))
        pathlib.Path(command[-1]).mkdir(parents=True)

    monkeypatch.setattr(debian.process, "run", make)
    monkeypatch.setattr(debian.subprocess, "call", lambda command: called.append(command) or 3)
    return called


def test_a_root_has_the_packages_of_versions_yaml_and_is_made_once(programs, tmp_path):
    place = debian.root("trixie", tmp_path / "log", ['A::B "c"'])
    assert place == tmp_path / "cache" / "hvd" / "debian" / "trixie"
    ((command),) = programs
    assert command[0] == "/usr/bin/mmdebstrap" and command[-2:] == ["trixie", str(place)]
    assert f"--include={','.join(pinned().debian['trixie'])}" in command
    assert '--aptopt=A::B "c"' in command
    assert debian.root("trixie", tmp_path / "log") == place and len(programs) == 1
    # one that was left half made is made again
    (place.with_name("trixie.stamp")).unlink()
    debian.root("trixie", tmp_path / "log")
    assert len(programs) == 2


def test_a_finished_root_is_there_while_another_command_has_its_lock(programs, tmp_path):
    place = debian.root("trixie", tmp_path / "log")
    with lock.exclusive(place.with_name("trixie.lock"), "makes a root of trixie"):
        assert debian.root("trixie", tmp_path / "log") == place
        place.with_name("trixie.stamp").unlink()
        with pytest.raises(HvdError, match="makes a root of trixie"):
            debian.root("trixie", tmp_path / "log")


def test_a_root_takes_packages_of_another_release_as_well(programs, tmp_path):
    """The lines that apt then reads are those of the release itself, from the same mirror."""
    debian.root("sid-rocm-7", tmp_path / "log")
    ((command),) = programs
    assert command[-2] == "sid" and "hipcc/experimental" in command[-3]
    (hook,) = (word for word in command if word.startswith("--setup-hook="))
    etc = tmp_path / "root" / "etc" / "apt"
    (etc / "sources.list.d").mkdir(parents=True)
    (etc / "sources.list").write_text("deb http://mirror/debian sid main\n")
    text = hook.partition("=")[2]
    subprocess.run(["sh", "-c", text, "hook", str(tmp_path / "root")], check=True)
    added = (etc / "sources.list.d" / "experimental.list").read_text()
    assert added == "deb http://mirror/debian experimental main\n"


def test_a_command_sees_the_checkout_the_cache_and_a_venv_of_its_own(
    programs, tmp_path, monkeypatch
):
    monkeypatch.setattr(paths, "ROOT", tmp_path / "checkout")
    (tmp_path / "checkout").mkdir()
    place = tmp_path / "trixie"
    assert debian.run(place, ["g++-14", "--version"], ["/etc"]) == 3
    ((words),) = programs
    assert words[-3:] == ["--", "g++-14", "--version"]
    binds = [words[n + 1 : n + 3] for n, word in enumerate(words) if word == "--bind"]
    own = str(tmp_path / "checkout" / ".hvd" / "debian" / "trixie")
    assert binds[0] == [str(place), "/"]
    assert [str(tmp_path / "checkout")] * 2 in binds and [str(paths.cache())] * 2 in binds
    assert [f"{own}/.venv", str(tmp_path / "checkout" / ".venv")] in binds
    assert [f"{own}/.hvd", str(tmp_path / "checkout" / ".hvd")] in binds
    assert ["--ro-bind", "/etc", "/etc"] == words[words.index("/etc") - 1 :][:3]


def test_what_is_missing_is_named(programs, tmp_path, monkeypatch):
    with pytest.raises(HvdError, match="ci/versions.yaml.*'potato'"):
        debian.root("potato", tmp_path / "log")
    for path in ("relative", "/no/such/directory"):
        with pytest.raises(HvdError, match=f"--bind: {path}"):
            debian.run(tmp_path, ["true"], [path])
    monkeypatch.setattr(debian.shutil, "which", lambda name: None)
    with pytest.raises(HvdError, match="bwrap"):
        debian.run(tmp_path, ["true"], [])
