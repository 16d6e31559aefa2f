"""publish's tree on disk: whole or not at all, one writer, no file of others lost."""

import os
import shlex
import shutil
import signal
import stat
import subprocess
import time

import pytest

from hvd.core import paths
from hvd.deliver.publish import store
from hvd.deliver.publish.plan import LANGUAGES, Origin, Tree
from hvd.upkeep import checkout
from tests import publishing

NAME = "horovod/0.28.1-torch-2.13-openmpi-4.1"
SOURCE = {"PYTHONPATH": str(paths.SOURCE)}
#: The system calls before which a publication is killed.
CALLS = ("open", "fsync", "mkdir", "chmod", "fchmod", "rename", "replace", "symlink")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "m"


@pytest.fixture
def published(publish, root):
    """A function that publishes a build for both tools, with further options."""
    publishing.pretend()

    def run(*options):
        return publish("--root", root, "--tool", "both", *options)

    return run


def tree(*versions: str) -> Tree:
    files = {f"{tool}/horovod/{v}": v.encode() * 999 for tool in LANGUAGES for v in versions}
    return Tree(files, {path: Origin("local-hvd", "pip") for path in files}, {})


def put(root, *versions: str) -> str:
    with store.locked(root):
        return store.write(root, store.read(root), tree(*versions))


def killed_at(call: int, root, *versions: str) -> bool:
    """Publish in a child that is killed before its system call number ``call``, if it makes one.

    Returns:
        Whether it was killed.
    """
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
    """The old tree is visible, or the new one; the next publication succeeds."""
    before = tree() if first else tree("1")
    call, seen = 0, set()
    killed = True
    while killed:
        call += step
        root = tmp_path / str(call)
        if not first:
            put(root, "1")
        killed = killed_at(call, root, "1", "2")
        found = store.read(root).tree
        assert found.files in (before.files, tree("1", "2").files)
        seen.add(len(found.files))
        for tool in LANGUAGES:
            for path in (root / tool).rglob("*") if (root / tool).exists() else ():
                assert path.is_file() or path.is_dir()
        put(root, "1", "2")
        store.switch(root, store.read(root).name)
        assert {path.name for path in (root / "lmod/horovod").iterdir()} == {"1", "2"}
        assert not list((root / store.GENERATIONS).glob(".*"))
    # it was killed many times, before and after the new tree became visible
    assert call > 20 and seen == {len(before.files), 4}


def test_a_reader_sees_no_part_of_a_tree(root) -> None:
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
        generations.add(os.path.realpath(root / "lmod/horovod"))
        names = {path.name for path in (root / "lmod/horovod").iterdir()}
        assert names == {str(number) for number in range(len(names))}
        for name in names:
            # the next generation may be visible by now
            assert (root / "lmod/horovod" / name).read_bytes() == name.encode() * 999
    assert len(generations) > 3
    assert len(store.read(root).tree.files) == 80


def test_two_at_a_time(published, root) -> None:
    command = checkout.command("publish", "--root", root, "--tool", "both")
    with store.locked(root):
        other = subprocess.run(
            command, env={**os.environ, **SOURCE}, capture_output=True, text=True
        )
    assert other.returncode == 2 and f"(process {os.getpid()})" in other.stderr
    assert not (root / store.CURRENT).exists()
    assert published()[0] == 0


def test_rollback_goes_back_one_at_a_time(published, publish, root) -> None:
    back = ["--root", root, "--rollback"]
    published()
    first = publishing.snapshot(root / "lmod/")
    published("--suffix", "a", "--default")
    published("--suffix", "b")
    status, said = publish(*back, "--dry-run")
    assert status == 0 and "gone" in said and "4.1-b" in said and "4.1-a.lua" not in said
    assert len(store.read(root).tree.sources) == 6
    assert publish(*back)[0] == 0
    status, said = publish(*back)
    assert status == 0 and said.count("default") == 2
    assert publishing.snapshot(root / "lmod/") == first
    assert publish(*back)[0] == 2
    # and forward again, with a number of its own
    published("--suffix", "c")
    assert store.read(root).name.startswith("0004-")


@pytest.mark.parametrize("umask", [0, 0o77])
def test_everyone_reads_and_only_the_owner_writes(umask, published, root) -> None:
    before = os.umask(umask)
    try:
        assert published()[0] == 0
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [root, *root.rglob("*")]}
    for path, mode in modes.items():
        assert path.is_symlink() or mode == (0o755 if path.is_dir() else 0o644), path


def test_a_group_publishes_together_where_its_directory_is_for_that(published, root) -> None:
    root.mkdir()
    root.chmod(0o2775)
    assert published()[0] == 0
    modes = {".lock": 0o664, ".generations": 0o2775, "tcl/": 0o2755}
    assert {name: stat.S_IMODE(os.stat(root / name).st_mode) for name in modes} == modes


def test_ten_variants_are_published_in_a_moment(published, root) -> None:
    """See docs/publishing.md for how the time grows."""
    count = 10
    begin = time.process_time()
    for number in range(count):
        assert published("--suffix", f"v{number}")[0] == 0
    assert time.process_time() - begin < count
    assert len(store.read(root).tree.sources) == 2 * count


@pytest.mark.parametrize(
    ("path", "spoil"),
    [
        (f"lmod/{NAME}.lua", 'echo mine > "$0"'),
        ("tcl/horovod/mine", 'echo mine > "$0"'),
        ("tcl/horovod/mine", 'ln -s /tmp "$0"'),
        (f"tcl/{NAME}", 'rm "$0"'),
        (f"tcl/{NAME}", 'mv "$0" ../copy; ln -s "$PWD/../copy" "$0"'),
        ("lmod", 'rm "$0"; mkdir "$0"'),
        (".current", 'rm "$0"; echo mine > "$0"'),
        (f".current/{store.MANIFEST}", """echo '{"format": 1}' > "$0" """),
        # in a root that others may write to
        (store.LOCK, 'rm "$0"; ln -s "$PWD/../file" "$0"'),
        (store.GENERATIONS, 'mv "$0" ../copy; ln -s "$PWD/../copy" "$0"'),
    ],
)
def test_what_others_wrote_is_named_and_stays(path, spoil, published, root) -> None:
    assert published()[0] == 0
    subprocess.run(["sh", "-c", spoil, root / path], cwd=root, check=True)
    before = publishing.snapshot(root)
    for option in ("--suffix=a", "--replace"):
        status, said = published(option)
        assert status == 2 and path.rpartition("/")[2] in said and "hint" in said
    assert publishing.snapshot(root) == before


def test_what_is_in_the_way(published, root) -> None:
    root.write_text("")
    status, said = published()
    assert status == 2 and f"{root}: File exists" in said
    root.unlink()
    (root / "lmod").mkdir(parents=True)
    (root / "other").write_text("not in the way")
    before = publishing.snapshot(root)
    status, said = published()
    assert status == 2 and f"{root}/lmod" in said
    assert publishing.snapshot(root) == before
    (root / "lmod").rmdir()
    assert published()[0] == 0
    assert (root / "other").read_text() == "not in the way"


#: Publish; make the disk refuse everything; publish again, and check that nothing changed.
ON_A_DISK = """\
set -eu
mount -t tmpfs -o size=256k none "$DISK"
publish() {{ {hvd} publish --root "$DISK/m" --tool both "$@"; }}
publish > "$OUT/first"
look() {{
    cd "$DISK/m"
    find . ! -name .lock -printf '%p %m %l\\n' | sort
    cat lmod/horovod/* | cksum
}}
look > "$OUT/before"
(cd "$DISK"; {spoil})
publish --suffix second > "$OUT/said" 2>&1 && exit 9
look > "$OUT/after"
(cd "$DISK"; {mend})
publish --suffix second > "$OUT/third"
"""


@pytest.mark.parametrize(
    ("spoil", "mend", "error"),
    [
        ("dd if=/dev/zero of=filler bs=4k 2> /dev/null || true", "rm filler", "No space left"),
        ("mount -o remount,ro .", "mount -o remount,rw .", "Read-only file system"),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_takes_nothing(spoil, mend, error, tmp_path) -> None:
    """What was published before still is, and the next publication succeeds."""
    if not shutil.which("unshare"):
        pytest.skip("unshare is not on PATH")
    alone = ["unshare", "--mount", "--map-root-user"]
    mount = subprocess.run([*alone, "mount", "-t", "tmpfs", "none", tmp_path], capture_output=True)
    if mount.returncode:
        pytest.skip(f"cannot mount: {mount.stderr.decode().strip()}")
    publishing.pretend()
    disk = tmp_path / "disk"
    disk.mkdir()
    hvd = shlex.join(checkout.command())
    script = ON_A_DISK.format(spoil=spoil, mend=mend, hvd=hvd)
    done = subprocess.run(
        [*alone, "bash", "-c", script],
        env={**os.environ, **SOURCE, "DISK": str(disk), "OUT": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()
    said = (tmp_path / "said").read_text()
    assert error in said and "hint" in said
    assert "0002-" in (tmp_path / "third").read_text()
