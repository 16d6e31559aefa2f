"""The fix for a Spack that refuses in ten minutes, as docs/build-messages.md has it."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from hvd.core import paths
from hvd.solve import location
from tests.checkout import run
from tests.spack.conftest import variables

PAGE = paths.ROOT / "docs" / "build-messages.md"
#: Refused, of the smallest package with virtual dependencies.
SPEC = "zlib %gcc@4.9"
FALSE = "Cannot find a valid provider for virtual"


@pytest.fixture
def root(located, tmp_path):
    """A user's own Spack, as released."""
    root = tmp_path / "spack"
    left = shutil.ignore_patterns(".git", "__pycache__")
    shutil.copytree(located.root, root, symlinks=True, ignore=left)
    # that of ./hvd is fixed already
    run(["git", "-C", root, "apply", "--reverse", location.FIX], status=None)
    return root


@pytest.fixture
def refuse(spack, root, tmp_path):
    """A function that runs commands, and then has the user's Spack refuse `SPEC`."""
    environment = {
        **variables(spack, spack.scope, tmp_path / "cache"),
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }

    def run_it(*before):
        for command in before:
            run(["bash", "-c", command], env=environment)
        return run(["spack", "--color=never", "spec", SPEC], status=1, env=environment)

    return run_it


def test_the_remedy_takes_the_false_reasons_away(refuse, located):
    """And the inverse brings them back; Spack 1.1 has none."""
    remedy, back = (
        line.replace("~/hvd", str(paths.ROOT))
        for line in re.findall(r"`(patch [^`]*spack-has-provider[^`]*)`", PAGE.read_text())
    )
    before = refuse()
    assert "gcc@4.9" in before
    if located.pair.spack.version == "1.1":
        assert FALSE not in before
        return
    assert FALSE in before
    after = refuse(remedy)
    assert FALSE not in after and "gcc@4.9" in after
    assert FALSE in refuse(back)


def test_the_other_patch_for_spack_applies(root):
    run(["git", "-C", root, "apply", "--check", paths.ROOT / "ci" / "spack-causes.patch"])
