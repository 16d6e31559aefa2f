"""indices: Spack's indices of packages are those of our recipes as they are."""

import os
import shutil

import pytest

from hvd.core import paths
from hvd.solve import repo_index


@pytest.fixture
def recipes(monkeypatch, tmp_path):
    """A copy of our recipes, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(paths, "PACKAGES", tmp_path / "packages")
    shutil.copytree(paths.ROOT / "packages", paths.PACKAGES)
    return paths.PACKAGES


def write(place, text, time):
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    os.utime(place, (time, time))


def test_a_patch_alone_makes_other_indices(recipes):
    """Its recipe is as old as before, so Spack would look for the patch that was."""
    before = repo_index.directory("spack-1.2")
    assert before.is_dir() and repo_index.directory("spack-1.2") == before
    assert repo_index.directory("spack-1.1") != before
    patch = next(recipes.glob("*/patches/*.patch"))
    patch.write_text(patch.read_text() + "\n")
    assert repo_index.directory("spack-1.2") != before


def test_those_of_spacks_own_packages_are_taken_over(recipes):
    place = repo_index.directory("spack-1.2")
    old = place.parent / "patches" / "builtin-v5-index.json"
    write(old, "of an earlier ./hvd", 1000)
    write(place / "patches" / "builtin-v5-index.json", "newer", 2000)
    write(place / "patches" / "hvd-v5-index.json", "ours", 3000)
    (recipes / "another.patch").write_text("x")
    other = repo_index.directory("spack-1.2")
    assert [file.name for file in (other / "patches").iterdir()] == ["builtin-v5-index.json"]
    taken = other / "patches" / "builtin-v5-index.json"
    assert taken.read_text() == "newer" and taken.stat().st_mtime == 2000
    assert not [each for each in place.parent.iterdir() if each.name.startswith("tmp")]
