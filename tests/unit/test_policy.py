"""What holds for the whole repository."""

import re
import subprocess
import sys

import pytest
import yaml

from hvd.core import paths
from hvd.model import environment
from hvd.model.versions import pinned


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_style(command):
    words = [sys.executable, "-m", "ruff", *command, paths.ROOT]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def tracked(*patterns):
    """The files that git tracks, by path from the root."""
    listed = subprocess.run(
        ["git", "-C", paths.ROOT, "ls-files", "--", *patterns], capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout: nothing says which files are tracked")
    files = [name for name in listed.stdout.splitlines() if (paths.ROOT / name).is_file()]
    assert files
    return files


def test_words_are_spelt_right():
    files = tracked("*.md", "*.py", "*.yaml", ":!tests")
    words = [sys.executable, "-m", "codespell_lib", "--ignore-words-list=nd,fpr", *files]
    done = subprocess.run(words, cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


#: What only one machine has: a directory below its root, or the registry that it is set up for.
ELSEWHERE = re.compile(
    rb"(?<![\w.$}/~-])/(work|root)/[\w.-]|pypi\.org|files\.pythonhosted\.org|registry\.npmjs\.org"
)
#: The work file system of TACC's machines, where their sites have Horovod's environments.
OF_SITES = b"/work/projects/horovod/"


def test_no_file_names_a_directory_of_one_machine_or_the_host_of_a_registry():
    locks = re.compile(r"(^|/)(requirements[\w-]*\.txt|package-lock\.json)$")
    named = [
        f"{name}: {line.decode(errors='replace')}"
        for name in tracked()
        if not locks.search(name)
        for line in (paths.ROOT / name).read_bytes().splitlines()
        if ELSEWHERE.search(line.replace(OF_SITES, b""))
    ]
    assert not named


def test_environments_are_specs_and_includes_and_linked_to_their_checkout():
    """`spack env track` needs the link: see environments/local-hvd/spack.yaml."""
    for name in environment.names():
        directory = paths.ENVIRONMENTS / name
        content = yaml.safe_load((directory / "spack.yaml").read_text())
        assert set(content) == {"spack"} and set(content["spack"]) <= {"specs", "include"}, name
        link = directory / ".checkout"
        assert link.is_symlink() and link.resolve() == paths.ROOT


def test_the_default_root_spec_leaves_no_variant_open():
    """So that Spack, the pip engine and the pruned solve mean the same thing."""
    (spec,) = environment.load("local-hvd").specs
    for variant in ("[+~]mpi", "[+~]gloo", "[+~]cuda", "[+~]rocm", "frameworks:="):
        assert re.search(rf" ?{variant}", spec), variant


def test_tool_requirements_are_pinned_with_hashes():
    for file in (paths.ROOT / "ci").glob("requirements*.txt"):
        text = file.read_text()
        known = re.findall(r"^[a-z0-9][\w.-]*==", text, re.MULTILINE)
        assert known and text.count("--hash=sha256:") >= len(known)
        assert not re.findall(r"^[a-z0-9][\w.-]*(?!==)[<>~]", text, re.MULTILINE)


def test_readme_names_every_pair():
    readme = (paths.ROOT / "README.md").read_text()
    supported = readme.partition("## Supported versions")[2].partition("## ")[0]
    page = (paths.ROOT / "docs" / "support-matrix.md").read_text()
    for pair in pinned().pairs:
        assert pair.spack.version in supported and pair.packages.version in page, pair.name
