"""A change of Spack's packages that breaks an environment is found, and its commit named."""

from __future__ import annotations

import json
import shutil

import pytest

from hvd.model.versions import pinned
from hvd.solve import location
from tests.checkout import commit, copy_checkout, git, run

#: The smallest one of a site.
ENVIRONMENT = "stampede3-cpu-hvd"
#: Recipes that commits change before and after the one that breaks.
HARMLESS = ("zlib", "bzip2", "gmake")


@pytest.fixture
def repositories(located, tmp_path):
    """Copies of Spack and its packages with one commit each: the cache's have no history."""
    found = {}
    for kind, source in (("spack", located.root), ("packages", located.packages)):
        found[kind] = tmp_path / kind
        left = shutil.ignore_patterns(".git", "__pycache__")
        shutil.copytree(source, found[kind], symlinks=True, ignore=left)
        run(["git", "init", "--quiet", found[kind]])
        # Spack has files that it tells git to ignore
        git(found[kind], "add", "--force", ".")
        commit(found[kind])
    # as released
    run(["git", "-C", found["spack"], "apply", "--reverse", location.FIX], status=None)
    commit(found["spack"])
    return found


def test_a_package_that_is_renamed_is_found(repositories, pair, tmp_path):
    root = repositories["packages"]
    recipes = root / "repos" / "spack_repo" / "builtin" / "packages"
    pins = {kind: git(place, "rev-parse", "HEAD") for kind, place in repositories.items()}

    def harmless(name: str) -> None:
        with open(recipes / name / "package.py", "a") as recipe:
            recipe.write("\n# a comment\n")
        commit(root, f"{name}: a comment")

    for name in HARMLESS:
        harmless(name)
    git(root, "mv", recipes / "py_psutil", recipes / "py_process_utilities")
    recipe = recipes / "py_process_utilities" / "package.py"
    recipe.write_text(recipe.read_text().replace("class PyPsutil", "class PyProcessUtilities"))
    planted = commit(root, "py-psutil: rename to py-process-utilities")
    for name in HARMLESS:
        harmless(name)

    checkout = copy_checkout(tmp_path / "hvd")
    versions = checkout.root / "ci" / "versions.yaml"
    known = pinned().pair(pair)
    text = versions.read_text().replace(known.spack.commit, pins["spack"])
    versions.write_text(text.replace(known.packages.commit, pins["packages"]))
    words = ["canary", ENVIRONMENT, "--pair", pair]
    for kind, place in repositories.items():
        words += [f"--{kind}", place]
    output = checkout.hvd(*words, status=1, XDG_CACHE_HOME=str(tmp_path / "cache"))
    report = json.loads((checkout.state / "reports/canary/report.json").read_text())
    # when no pinned Spack needs it any more, ci/spack-has-provider.patch can go
    assert report["fix_needed"] == (known.spack.version == "1.2"), output
    (broken,) = report["broken"]
    assert broken["name"] == ENVIRONMENT
    assert (broken["kind"], broken["commit"]["id"]) == ("packages", planted), output
    assert "py_psutil" in broken["reason"]
    # no solution of the checkout has changed
    assert not (checkout.root / "environments" / ENVIRONMENT / "spack.lock").exists()
