"""publish where others wrote, and on disks that take nothing: nothing is lost."""

import json
import os
import shlex
import shutil
import subprocess

import pytest

from hvd.core import paths
from hvd.deliver.publish import store
from tests import publishing
from tests.conftest import unmet


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    return publishing.state(tmp_path / "state", monkeypatch)


def spoil_by_hand(root) -> str:
    next((root / "lmod/horovod").glob("0*.lua")).write_text("print('mine')")
    return "torch-2.13-openmpi-4.1.lua was changed by hand"


def add_a_file(root) -> str:
    (root / "tcl/horovod/mine").write_text("#%Module")
    return "tcl/horovod/mine was not written by ./hvd publish"


def add_a_link(root) -> str:
    (root / "tcl/horovod/mine").symlink_to("/tmp")
    return "tcl/horovod/mine was not written by ./hvd publish"


def remove_a_file(root) -> str:
    next((root / "tcl/horovod").glob("0*")).unlink()
    return "torch-2.13-openmpi-4.1 is gone"


def replace_the_link(root) -> str:
    (root / "lmod").unlink()
    (root / "lmod").mkdir()
    return "m/lmod was not written by ./hvd publish"


def replace_current(root) -> str:
    (root / ".current").unlink()
    (root / ".current").write_text("x")
    return "m/.current was not written by ./hvd publish"


def spoil_the_manifest(root) -> str:
    (root / ".current" / store.MANIFEST).write_text(json.dumps({"format": 1}))
    return "manifest.json cannot be read: 'files'"


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_by_hand, add_a_file, add_a_link, remove_a_file, replace_the_link, replace_current,
        spoil_the_manifest,
    ],
)  # fmt: skip
def test_what_others_wrote_stays(spoil, publish, tmp_path) -> None:
    publishing.pretend()
    root = tmp_path / "m"
    assert publish("--root", root, "--tool", "both")[0] == 0
    text = spoil(root)
    before = publishing.snapshot(root)
    for more in (["--tool", "both", "--suffix", "a"], ["--tool", "both", "--replace"]):
        status, said = publish("--root", root, *more)
        assert status == 2 and text in said and "hint" in said
    assert publishing.snapshot(root) == before


def test_a_foreign_directory_in_the_way(publish, tmp_path) -> None:
    publishing.pretend()
    root = tmp_path / "m"
    (root / "lmod").mkdir(parents=True)
    (root / "other").write_text("not in the way")
    before = publishing.snapshot(root)
    status, said = publish("--root", root, "--tool", "tcl")
    assert status == 2 and f"{root}/lmod was not written by ./hvd publish" in said
    assert publishing.snapshot(root) == before
    (root / "lmod").rmdir()
    assert publish("--root", root, "--tool", "tcl")[0] == 0
    assert (root / "other").read_text() == "not in the way"


def test_a_root_that_cannot_be_made(publish, tmp_path) -> None:
    publishing.pretend()
    (tmp_path / "file").write_text("")
    status, said = publish("--root", tmp_path / "file/m", "--tool", "tcl")
    assert status == 2 and "cannot publish to" in said and "Not a directory" in said


#: Publishes, lets it fail, and looks whether all is as before; on a disk of its own.
ON_A_DISK = """\
set -eu
mount -t tmpfs -o {options} none "$DISK"
publish() {{ {hvd} publish --root "$DISK/m" --tool both "$@"; }}
publish > "$OUT/first"
look() {{
    cd "$DISK/m"
    find . ! -name .lock -printf '%p %m %l\\n' | sort
    cat lmod/horovod/* | cksum
}}
look > "$OUT/before"
{spoil}
publish --suffix second > "$OUT/said" 2>&1 && exit 9
look > "$OUT/after"
{mend}
publish --suffix second > "$OUT/third"
"""


@pytest.mark.parametrize(
    ("options", "spoil", "mend", "text"),
    [
        (
            "size=256k",
            'dd if=/dev/zero of="$DISK/filler" bs=4k 2> /dev/null || true',
            'rm "$DISK/filler"',
            "No space left on device",
        ),
        (
            "size=1m",
            'mount -o remount,ro "$DISK"',
            'mount -o remount,rw "$DISK"',
            "Read-only file system",
        ),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_takes_nothing(options, spoil, mend, text, request, tmp_path) -> None:
    """What was published before still is, and the next publication goes through."""
    if not shutil.which("unshare"):
        unmet(request.config, "build", "unshare is not on PATH")
    alone = ["unshare", "--mount", "--map-root-user"]
    probe = subprocess.run([*alone, "mount", "-t", "tmpfs", "none", tmp_path], capture_output=True)
    if probe.returncode:
        unmet(request.config, "build", f"no mount of one's own: {probe.stderr.decode().strip()}")
    publishing.pretend()
    (tmp_path / "disk").mkdir()
    hvd = shlex.join(publishing.command())
    script = ON_A_DISK.format(options=options, spoil=spoil, mend=mend, hvd=hvd)
    done = subprocess.run(
        [*alone, "bash", "-c", script],
        env={
            **os.environ,
            "PYTHONPATH": str(paths.SOURCE),
            "DISK": str(tmp_path / "disk"),
            "OUT": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()
    said = (tmp_path / "said").read_text()
    assert text in said and "what was published before is as it was" in said and "hint" in said
    assert "0002-" in (tmp_path / "third").read_text()
