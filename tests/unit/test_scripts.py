"""The scripts that maintainers run: lint, a release in a clone, patches for upstream."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest
import yaml

from hvd.core import paths
from hvd.deliver import bundle
from hvd.model import recipe
from hvd.solve import location
from tests.checkout import commit, copy_checkout, git, run, script

SCRIPTS = [paths.ROOT / ".ci" / "run", bundle.INSTALLER, bundle.INSTALLER.with_name("image.sh")]
SCRIPTS += sorted((paths.ROOT / "scripts").glob("*.sh"))
UPSTREAM = paths.ROOT / "docs" / "upstream.md"


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck(file):
    # variables of bundle.env
    words = ["--exclude=SC1091,SC2153,SC2154"] if file == bundle.INSTALLER else []
    shellcheck = pathlib.Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, *words, file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def clone(tmp_path):
    """A function that releases a clone."""
    root = copy_checkout(tmp_path / "clone").root
    commit(root)
    for key, value in (("user.name", "t"), ("user.email", "t@example.org")):
        git(root, "config", key, value)
    return root


def release(clone: pathlib.Path, *words: object, status: int = 0, **variables: str) -> str:
    command = [clone / "scripts" / "release.sh", *words]
    return run(command, status, env={**os.environ, **variables})


def test_a_release_is_a_commit_a_tag_and_files(clone, tmp_path):
    before = git(clone, "rev-parse", "HEAD")
    wheel = tmp_path / "horovod.whl"
    wheel.write_bytes(b"wheel")
    release(clone, "0.1.0", wheel)
    assert git(clone, "rev-parse", "v0.1.0^{}", "HEAD~1").split() == [
        git(clone, "rev-parse", "HEAD"),
        before,
    ]
    assert len(git(clone, "worktree", "list").splitlines()) == 1
    message = git(clone, "tag", "--list", "--format=%(contents)", "v0.1.0")
    assert message.startswith("hvd 0.1.0") and "### Recipes" in message
    out = clone / ".hvd" / "releases" / "0.1.0"
    names = {path.name for path in out.iterdir()}
    assert names == {"hvd-0.1.0.tar.gz", "horovod.whl", "SHA256SUMS"}
    run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out)
    # the next one
    assert "no section" in release(clone, "0.2.0", status=2)
    changelog = clone / "CHANGELOG.md"
    text = changelog.read_text()
    tested = re.search(r"^Tested with .*?\n\n", text, re.MULTILINE | re.DOTALL)[0]
    section = f"## Unreleased\n\n{tested}- Better.\n\n## 0.1.0"
    changelog.write_text(text.replace("## 0.1.0", section.replace(tested, ""), 1))
    assert "has changes" in release(clone, "0.2.0", status=2)
    commit(clone)
    assert "does not name" in release(clone, "0.2.0", status=2)
    changelog.write_text(text.replace("## 0.1.0", section, 1))
    commit(clone)
    assert "v0.1.0 is released already" in release(clone, "0.1.0", status=2)
    release(clone, "0.2.0")
    text = changelog.read_text()
    assert text.index("## 0.2.0") < text.index("Better.") < text.index("## 0.1.0")
    cited = yaml.safe_load((clone / "CITATION.cff").read_text())
    assert cited["version"] == "0.2.0" and cited["date-released"] in text
    assert 'version = "0.2.0"' in (clone / "ci" / "pyproject.toml").read_text()


def test_a_signed_release_and_one_that_fails(clone):
    if not shutil.which("gpg"):
        pytest.skip("gpg is not on PATH")
    before = git(clone, "rev-parse", "HEAD")
    # in /tmp, as the path of gpg-agent's socket has to be short
    with tempfile.TemporaryDirectory(prefix="hvd-gpg-", dir="/tmp") as home:
        own = {**os.environ, "GNUPGHOME": home}
        make = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "r@example.org"]
        run([*make, "ed25519", "sign"], env=own)
        release(clone, "0.1.0", status=2, KEY="nobody@example.org", GNUPGHOME=home)
        assert git(clone, "tag") == "" and git(clone, "rev-parse", "HEAD") == before
        assert not (clone / ".hvd" / "releases").exists()
        release(clone, "0.1.0", KEY="r@example.org", GNUPGHOME=home)
        run(["git", "-C", clone, "verify-tag", "v0.1.0"], env=own)
        out = clone / ".hvd" / "releases" / "0.1.0"
        run(["gpg", "--verify", "SHA256SUMS.asc", "SHA256SUMS"], cwd=out, env=own)
        run(["gpgconf", "--kill", "all"], None, env=own)


#: In the place of ./hvd: solves where there are the files that it needs.
HVD = """#!/bin/sh
good='test -e "$HVD_SPACK/needed" -a -e "$HVD_PACKAGES/needed"'
case $1 in
    list) printf 'a-hvd  x\\nb-hvd  x\\n' ;;
    concretize) shift; [ "$*" = "b-hvd --engine spack --fresh" ] || eval "$good" ;;
    setup) mkdir -p .hvd; echo "spack() { $good; }" >.hvd/setup-env.sh ;;
esac
"""


@pytest.mark.parametrize("kind", ["spack", "packages"])
def test_the_canary_bisects_to_what_broke_an_environment(tmp_path, kind):
    checkout, known, variables = tmp_path / "hvd", {}, {}
    (checkout / "ci").mkdir(parents=True)
    script(checkout / "hvd", *HVD.splitlines()[1:])
    shutil.copytree(paths.ROOT / "scripts", checkout / "scripts")
    shutil.copy(location.FIX, checkout / "ci")
    for each in ("spack", "packages"):
        root = tmp_path / each
        version = root / "lib" / "spack" / "spack" / "__init__.py"
        version.parent.mkdir(parents=True)
        version.write_text('__version__ = "1.2.0"\n')
        (root / "needed").touch()
        known[each] = commit(root)
        variables[each.upper()] = str(root)
    root = tmp_path / kind
    for change in ("one", "two", "the reason", "three"):
        if change == "the reason":
            git(root, "mv", "needed", "moved")
        commit(root, change)
    addresses = "".join(f"  {each}: https://example.org/{each}\n" for each in known)
    pins = "".join(f"  {each}: {{commit: {pin}}}\n" for each, pin in known.items())
    text = f"git:\n{addresses}\npairs:\n- name: p\n{pins}\n"
    (checkout / "ci" / "versions.yaml").write_text(text)
    commit(checkout)
    run([checkout / "scripts" / "canary.sh"], 1, env={**os.environ, **variables})
    report = (checkout / ".hvd" / "canary" / "report.md").read_text()
    assert "broken: a-hvd py-horovod\n" in report
    assert re.search(rf"^since {kind} \w+ of [\d-]+, the reason$", report, re.MULTILINE), report


def patches(section: str) -> list:
    """The patches in a table of docs/upstream.md."""
    text = UPSTREAM.read_text().partition(f"### {section}\n")[2].partition("\n### ")[0]
    return re.findall(r"^\| \[`(\S+\.patch)`\]", text, re.MULTILINE)


def test_upstream_lists_every_patch_in_the_recipes_order():
    patched = recipe.load("py-horovod").named("patch")
    ours = [pathlib.Path(each.arguments[0]).name for each in patched]
    newest = [name for name in ours if name in patches("For Horovod")]
    assert patches("For Horovod") == newest
    others = patches("For projects that Horovod bundles") + patches("For older releases only")
    assert sorted(newest + others) == sorted(ours)


def test_mails_for_upstream_make_what_the_recipe_makes(horovod_tree, tmp_path, monkeypatch):
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "t")
        monkeypatch.setenv(f"{name}_EMAIL", "t@example.org")
    origin = tmp_path / "origin"
    shutil.copytree(horovod_tree("0.28.1"), origin)
    taken = paths.PACKAGES / "py_horovod" / "patches" / "zero-grad.patch"
    commit(origin)
    run(["git", "-C", origin, "apply", "--index", taken])
    commit(origin)
    script = paths.ROOT / "scripts" / "upstream.sh"
    output = run([script, tmp_path / "mails", f"file://{origin}"])
    assert re.findall("(.*) does not apply", output) == [taken.name]
    run(["git", "-C", origin, "am", "--quiet", *sorted((tmp_path / "mails").iterdir())])
    patched = horovod_tree("0.28.1", "+ddl+nccl+cuda+rocm")
    known = recipe.load("py-horovod")
    for name in patches("For Horovod"):
        text = (known.directory / "patches" / name).read_text()
        for file in re.findall(r"^\+\+\+ b/((?!third_party/)\S+)", text, re.MULTILINE):
            assert (origin / file).read_bytes() == (patched / file).read_bytes(), file
