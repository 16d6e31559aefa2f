"""``./hvd release``, in a clone."""

from __future__ import annotations

import os
import pathlib
import shutil
import tarfile
import tempfile

import pytest
import yaml

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.model.versions import pinned
from hvd.upkeep import checkout, release
from tests.checkout import commit, run


@pytest.fixture
def clone(tmp_path) -> pathlib.Path:
    checkout.copy(tmp_path / "clone")
    commit(tmp_path / "clone")
    for key, value in (("user.name", "t"), ("user.email", "t@example.org")):
        run(["git", "-C", tmp_path / "clone", "config", key, value])
    return tmp_path / "clone"


def make(clone: pathlib.Path, *words: object, status: int = 0, **variables: str) -> str:
    environment = {**checkout.variables(clone), **variables}
    return run(checkout.command("release", *words), status, env=environment, cwd=clone)


def git(clone: pathlib.Path, *words: str) -> str:
    return run(["git", "-C", clone, *words]).strip()


def test_a_release_is_a_commit_a_tag_and_files(clone, tmp_path):
    before = git(clone, "rev-parse", "HEAD")
    said = make(clone, "0.1.0", "--to", tmp_path / "out")
    assert "git push origin HEAD v0.1.0" in said
    # the tag is on the branch, one commit later, and nothing else is left
    assert git(clone, "rev-parse", "v0.1.0^{}") == git(clone, "rev-parse", "HEAD")
    assert git(clone, "rev-parse", "HEAD~1") == before
    assert git(clone, "status", "--porcelain") == ""
    assert len(git(clone, "worktree", "list").splitlines()) == 1
    changed = git(clone, "diff", "--name-only", "HEAD~1").splitlines()
    assert set(changed) <= {"CHANGELOG.md", "CITATION.cff", "ci/pyproject.toml"}

    text = (clone / "CHANGELOG.md").read_text()
    assert "## 0.1.0 (20" in text and "Unreleased" not in text
    for pair in pinned().pairs:
        assert f"packages {pair.packages.version} ({pair.packages.commit[:8]})" in text
    assert text.count("Tested with") == 1
    message = git(clone, "tag", "--list", "--format=%(contents)", "v0.1.0")
    assert message.startswith("hvd 0.1.0") and "### Recipes" in message

    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"hvd-0.1.0.tar.gz", "SHA256SUMS"}
    run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path / "out")
    with tarfile.open(tmp_path / "out" / "hvd-0.1.0.tar.gz") as archive:
        found = archive.extractfile("hvd-0.1.0/CHANGELOG.md").read().decode()
        assert found == text
        assert "hvd-0.1.0/hvd" in archive.getnames()


def test_files_that_are_added_have_checksums(clone, tmp_path):
    wheel, missing = tmp_path / "horovod.whl", tmp_path / "missing.whl"
    wheel.write_bytes(b"wheel")
    added = ["--add", wheel, "--to", tmp_path / "out"]
    for wrong, message in (missing, "cannot copy"), (wheel, "two files have the name"):
        assert message in make(clone, "0.1.0", *added, "--add", wrong, status=17)
        assert git(clone, "tag") == "" and not (tmp_path / "out").exists()
    make(clone, "0.1.0", *added)
    assert "  horovod.whl\n" in (tmp_path / "out" / "SHA256SUMS").read_text()
    run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path / "out")


def test_the_next_one_has_a_section_of_its_own(clone, tmp_path):
    make(clone, "0.1.0", "--to", tmp_path / "1")
    said = make(clone, "0.2.0", "--to", tmp_path / "2", status=2)
    assert "no section '## Unreleased'" in said
    changelog = clone / "CHANGELOG.md"
    text = changelog.read_text().replace("## 0.1.0", "## Unreleased\n\n- Better.\n\n## 0.1.0", 1)
    changelog.write_text(text)
    assert "differ from commit" in make(clone, "0.2.0", "--to", tmp_path / "2", status=2)
    git(clone, "commit", "--quiet", "--all", "-m", "x")
    assert "0.1.0 is released already" in make(clone, "0.1.0", status=2)
    make(clone, "0.2.0", "--to", tmp_path / "2")
    text = changelog.read_text()
    # the older section stays as it is
    assert text.index("## 0.2.0") < text.index("Better.") < text.index("## 0.1.0")
    assert text.count("Tested with") == 2
    assert yaml.safe_load((clone / "CITATION.cff").read_text())["version"] == "0.2.0"
    assert 'version = "0.2.0"' in (clone / "ci" / "pyproject.toml").read_text()


@pytest.fixture
def gnupg():
    """A keyring of the releaser's; in /tmp, as the path of gpg-agent's socket has to be short."""
    if not shutil.which("gpg"):
        pytest.skip("gpg is not on PATH")
    with tempfile.TemporaryDirectory(prefix="hvd-gpg-", dir="/tmp") as home:
        yield home
        run(["gpgconf", "--kill", "all"], None, env={**os.environ, "GNUPGHOME": home})


def test_a_releaser_signs_with_a_key_of_their_own(clone, gnupg, tmp_path):
    own = {**os.environ, "GNUPGHOME": gnupg}
    words = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "r@example.org"]
    run([*words, "ed25519", "sign"], env=own)
    make(clone, "0.1.0", "--sign", "r@example.org", "--to", tmp_path / "out", GNUPGHOME=gnupg)
    run(["git", "-C", clone, "verify-tag", "v0.1.0"], env=own)
    sums = tmp_path / "out" / "SHA256SUMS"
    verify = ["gpg", "--verify", tmp_path / "out" / release.SIGNATURE, sums]
    run(verify, env=own)
    sums.write_text(sums.read_text().replace("0", "1"))
    run(verify, 1, env=own)


def test_where_gpg_or_the_branch_refuses_nothing_is_released(clone, gnupg, tmp_path):
    before = git(clone, "rev-parse", "HEAD")

    def nothing() -> bool:
        files = [path.name for path in tmp_path.iterdir() if path.name != "clone"]
        worktrees = git(clone, "worktree", "list").splitlines()
        state = git(clone, "tag"), git(clone, "rev-parse", "HEAD"), files, len(worktrees)
        return state == ("", before, [], 1)

    words = ("0.1.0", "--to", tmp_path / "out")
    said = make(clone, *words, "--sign", "nobody@example.org", status=17, GNUPGHOME=gnupg)
    assert "nothing is released" in said and "nobody@example.org" in said
    assert nothing()
    said = make(clone, *words, "--bundle", "no-such-environment", status=2)
    assert "no environment is called" in said and nothing()


@pytest.mark.parametrize("version", ["1", "0.1", "v0.1.0", "0.1.0rc1", "x"])
def test_what_is_no_version(version):
    with pytest.raises(HvdError, match="is no version"):
        release.check(version)


def test_the_citation_names_what_its_format_asks_for():
    found = yaml.safe_load((paths.ROOT / release.CITATION).read_text())
    # https://github.com/citation-file-format/citation-file-format/blob/1.2.0/schema-guide.md
    assert {"cff-version", "message", "title", "authors"} <= set(found)
    assert found["cff-version"] == "1.2.0" and set(found["license"]) == {"Apache-2.0", "MIT"}
    project = (paths.ROOT / release.PROJECT).read_text()
    assert f'version = "{found["version"]}"' in project
