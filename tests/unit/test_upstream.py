"""docs/upstream.md and ``./hvd upstream``: every patch is listed, and what is sent applies."""

from __future__ import annotations

import re
import shutil

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.upkeep import upstream
from tests.checkout import commit, run

OFFERS = upstream.offers()


def test_every_patch_is_listed_once_and_the_page_is_up_to_date():
    assert upstream.write(check=True) == []
    listed = re.findall(r"^\| \[`(\S+\.patch)`\]", upstream.PAGE.read_text(), re.MULTILINE)
    files = [path.name for path in (paths.PACKAGES / "py_horovod").glob("*.patch")]
    assert sorted(listed) == sorted(files)
    for each in OFFERS:
        assert each.title.endswith((".", ")")) and each.versions and each.links, each.file.name


def test_who_a_patch_is_for():
    found = {each.file.name: each for each in OFFERS}
    assert (found["waiting.patch"].to, found["waiting.patch"].current) == (("Horovod",), True)
    assert found["span.patch"].to == ("flatbuffers",)
    assert found["headers-0.21.patch"].to == ("Horovod", "gloo")
    # a variant that few ask for makes no difference
    assert found["rocm.patch"].current
    assert not found["lsf-0.19.2.patch"].current
    assert set(upstream.recipes()) == {"py-horovod", "ibm-ddl", "intel-mpi"}


@pytest.fixture
def origin(horovod_tree, tmp_path, monkeypatch):
    """A repository with the newest release of Horovod."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "t")
        monkeypatch.setenv(f"{name}_EMAIL", "t@example.org")
    origin = tmp_path / "origin"
    shutil.copytree(horovod_tree("0.28.1"), origin)
    commit(origin)
    return origin


def test_the_series_makes_what_the_recipe_makes(horovod_tree, origin, tmp_path):
    taken, left = upstream.series(str(origin), tmp_path / "series", tmp_path / "log")
    wanted = [each.file.name for each in OFFERS if each.current and "Horovod" in each.to]
    assert (taken, left) == (wanted, [])
    mails = sorted((tmp_path / "series").glob("*.patch"))
    assert len(mails) == len(wanted)
    run(["git", "-C", origin, "am", "--quiet", *mails])
    patched = horovod_tree("0.28.1", "+ddl+nccl+cuda+rocm")
    for each in OFFERS:
        if each.file.name in wanted:
            for name in re.findall(r"^\+\+\+ b/(\S+)", each.file.read_text(), re.MULTILINE):
                if name.startswith("third_party/"):
                    continue
                assert (origin / name).read_bytes() == (patched / name).read_bytes(), name
    with pytest.raises(HvdError, match="is there already"):
        upstream.series(str(origin), tmp_path / "series", tmp_path / "log")


def test_what_upstream_has_is_left_out(origin, tmp_path):
    run(["git", "-C", origin, "apply", paths.PACKAGES / "py_horovod" / "zero-grad.patch"])
    run(["git", "-C", origin, "commit", "-qam", "x"])
    _, left = upstream.series(str(origin), tmp_path / "series", tmp_path / "log")
    assert left == ["zero-grad.patch"]
