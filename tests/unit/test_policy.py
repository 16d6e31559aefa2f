"""What holds for the whole repository."""

import re
import subprocess
import sys

import pytest
import yaml

from hvd.core import paths
from hvd.model import environment
from hvd.model.versions import pinned


def tracked():
    listed = subprocess.run(
        ["git", "-C", paths.ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: no list of files to look at")
    return [paths.ROOT / name for name in filter(None, listed.stdout.split("\0"))]


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_style(command):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, paths.ROOT], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_environments_hold_specs_and_includes_only():
    for name in environment.names():
        content = yaml.safe_load((paths.ENVIRONMENTS / name / "spack.yaml").read_text())
        assert set(content) == {"spack"}
        assert set(content["spack"]) <= {"specs", "include"}, name


def test_every_environment_is_linked_to_its_checkout():
    """`spack env track` needs the link: see environments/local-hvd/spack.yaml."""
    for name in environment.names():
        link = paths.ENVIRONMENTS / name / ".checkout"
        assert link.is_symlink() and link.resolve() == paths.ROOT


def test_root_specs_leave_no_variant_open():
    """So that Spack, the pip engine and the pruned solve mean the same thing."""
    for text in environment.load("local-hvd").specs:
        for variant in ("mpi", "gloo", "cuda", "rocm"):
            assert re.search(rf"[+~]{variant}\b", text), variant
        assert "frameworks:=" in text


def test_pairs_are_pinned_by_commit():
    for pair in pinned().pairs:
        for pin in (pair.spack, pair.packages):
            assert re.fullmatch(r"[0-9a-f]{40}", pin.commit), pair.name


def test_tool_requirements_are_pinned_with_hashes():
    for file in (paths.ROOT / "ci").glob("requirements*.txt"):
        text = file.read_text()
        pinned = re.findall(r"^[a-z0-9][\w.-]*==", text, re.MULTILINE)
        assert pinned and text.count("--hash=sha256:") >= len(pinned)
        assert not re.findall(r"^[a-z0-9][\w.-]*(?!==)[<>~]", text, re.MULTILINE)


def test_readme_names_every_environment_and_pair():
    readme = (paths.ROOT / "README.md").read_text()
    table = readme.partition("## Environments")[2].partition("## ")[0]
    assert not [name for name in environment.names() if f"`{name}`" not in table]
    supported = readme.partition("## Supported versions")[2].partition("## ")[0]
    page = (paths.ROOT / "docs" / "support-matrix.md").read_text()
    for pair in pinned().pairs:
        assert pair.spack.version in supported and pair.packages.version in page, pair.name
    # for a user who has ten minutes
    assert len(readme.encode()) <= 6000
