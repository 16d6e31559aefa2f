"""publish's tree on disk: whole or not at all, one writer, nothing lost that others wrote."""

import os
import signal
import stat
import subprocess
import time

import pytest

from hvd.core import paths
from hvd.deliver.publish import store
from hvd.deliver.publish.plan import Source, Tree
from tests import publishing

#: What a killed publication may have been in the middle of.
CALLS = ("open", "fsync", "mkdir", "chmod", "fchmod", "rename", "replace", "symlink")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    return publishing.state(tmp_path / "state", monkeypatch)


#: What a group shares below the root.
SHARED = {".lock": 0o664, ".generations": 0o2775, "tcl": 0o2755}


def tree(*versions: str) -> Tree:
    files = {f"{tool}/horovod/{v}": v.encode() * 999 for tool in store.TOOLS for v in versions}
    return Tree(files, {path: Source("local-hvd", "pip") for path in files}, {})


def put(root, *versions: str) -> str:
    with store.locked(root):
        return store.write(root, store.read(root), tree(*versions))


def killed_at(call: int, root, *versions: str) -> bool:
    """Publish in a child that is killed before the system call of that number; whether it was."""
    child = os.fork()
    if not child:
        count = 0

        def counted(function):
            def call_(*arguments, **keywords):
                nonlocal count
                count += 1
                if count == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **keywords)

            return call_

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            put(root, *versions)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize(("first", "step"), [(True, 3), (False, 1)], ids=["first", "second"])
def test_a_kill_at_any_moment_leaves_a_whole_tree(first, step, tmp_path) -> None:
    """What is seen is the tree before or the one after; the next publication goes through."""
    before = tree() if first else tree("1")
    call, seen = 0, set()
    while True:
        call += step
        root = tmp_path / str(call)
        if not first:
            put(root, "1")
        ended = not killed_at(call, root, "1", "2")
        found = store.read(root).tree
        assert found.files in (before.files, tree("1", "2").files)
        seen.add(len(found.files))
        for tool in store.TOOLS:
            for path in (root / tool).rglob("*") if (root / tool).exists() else ():
                assert path.is_file() or path.is_dir()
        put(root, "1", "2")
        store.switch(root, store.read(root).name)
        assert {path.name for path in (root / "lmod/horovod").iterdir()} == {"1", "2"}
        assert not list((root / store.GENERATIONS).glob(".*"))
        if ended:
            break
    # it was killed before and after the moment that counts, and in many others
    assert call > 20 and seen == {len(before.files), 4}


def test_a_reader_sees_no_part_of_a_tree(tmp_path) -> None:
    root = tmp_path / "m"
    put(root, "0")
    child = os.fork()
    if not child:
        try:
            for last in range(1, 40):
                put(root, *map(str, range(last + 1)))
        finally:
            os._exit(0)
    generations = set()
    while not os.waitpid(child, os.WNOHANG)[0]:
        seen = os.path.realpath(root / "lmod/horovod")
        names = {path.name for path in (root / "lmod/horovod").iterdir()}
        assert names == {str(number) for number in range(len(names))}
        for name in names:
            # by the name that a module tool has, and that may be of the next generation by now
            assert (root / "lmod/horovod" / name).read_bytes() == name.encode() * 999
        generations.add(seen)
    assert len(generations) > 3
    assert len(store.read(root).tree.files) == 80


def test_two_at_a_time(publish, tmp_path) -> None:
    publishing.pretend()
    root = tmp_path / "m"
    with store.locked(root):
        other = subprocess.run(
            publishing.command("publish", "--root", root, "--tool", "both"),
            env={**os.environ, "PYTHONPATH": str(paths.SOURCE)},
            capture_output=True,
            text=True,
        )
    assert other.returncode == 2
    assert f"another ./hvd (process {os.getpid()}) publishes to {root}" in other.stderr
    assert not (root / store.CURRENT).exists()
    assert publish("--root", root, "--tool", "both")[0] == 0


def test_rollback_goes_back_one_at_a_time(publish, tmp_path) -> None:
    publishing.pretend()
    root = tmp_path / "m"
    common = ["--root", root, "--tool", "both"]
    publish(*common)
    first = publishing.snapshot(root / "lmod/")
    publish(*common, "--suffix", "a", "--default")
    publish(*common, "--suffix", "b")
    status, said = publish("--root", root, "--rollback", "--dry-run")
    assert status == 0 and "gone" in said and "4.1-b" in said and "4.1-a.lua" not in said
    assert len(store.read(root).tree.sources) == 6
    assert publish("--root", root, "--rollback")[0] == 0
    status, said = publish("--root", root, "--rollback")
    assert status == 0 and said.count("default") == 2
    assert publishing.snapshot(root / "lmod/") == first
    status, said = publish("--root", root, "--rollback")
    assert status == 2 and "no earlier publication" in said
    # and forward again, with a number of its own
    publish(*common, "--suffix", "c")
    assert store.read(root).name.startswith("0004-")


@pytest.mark.parametrize("umask", [0, 0o77])
def test_the_group_reads_and_the_world_does_not_write(umask, publish, tmp_path) -> None:
    publishing.pretend()
    before = os.umask(umask)
    try:
        assert publish("--root", tmp_path / "m", "--tool", "both")[0] == 0
    finally:
        os.umask(before)
    for path in [tmp_path / "m", *(tmp_path / "m").rglob("*")]:
        mode = path.lstat().st_mode
        if not path.is_symlink():
            assert stat.S_IMODE(mode) == (0o755 if path.is_dir() else 0o644), path


def test_a_group_publishes_together(publish, tmp_path) -> None:
    """Where its directory is for that."""
    publishing.pretend()
    root = tmp_path / "m"
    root.mkdir()
    root.chmod(0o2775)
    assert publish("--root", root, "--tool", "tcl")[0] == 0
    modes = {
        p.name: stat.S_IMODE(p.stat().st_mode) for p in (root / ".lock", root / ".generations")
    }
    assert modes == {".lock": 0o664, ".generations": 0o2775}
    assert stat.S_IMODE((root / "tcl/").stat().st_mode) == 0o2755


@pytest.mark.parametrize("count", [10])
def test_ten_variants_are_published_in_a_moment(count, publish, tmp_path) -> None:
    """All at once, and one after the other; see docs/publishing.md for how it grows."""
    publishing.pretend()
    root = tmp_path / "m"
    begin = time.process_time()
    for number in range(count):
        assert publish("--root", root, "--tool", "both", "--suffix", f"v{number}")[0] == 0
    assert time.process_time() - begin < count
    assert len(store.read(root).tree.sources) == 2 * count
