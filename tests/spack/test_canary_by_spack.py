"""scripts/canary.sh finds a change of Spack's packages that breaks an environment."""

from __future__ import annotations

import pathlib
import shutil
import sys

import pytest

from hvd.model.versions import pinned
from hvd.solve import location
from tests.checkout import commit, copy_checkout, git, run

#: The smallest one of a site.
ENVIRONMENT = "stampede3-cpu-hvd"


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
    venv = pathlib.Path(sys.prefix)
    if not (venv / "hvd-hvd").is_file():
        pytest.skip("the script calls ./hvd, whose .venv is whole with ./hvd test")
    pins = {kind: git(place, "rev-parse", "HEAD") for kind, place in repositories.items()}
    root = repositories["packages"]
    recipes = root / "repos" / "spack_repo" / "builtin" / "packages"

    git(root, "mv", recipes / "py_psutil", recipes / "py_process_utilities")
    recipe = recipes / "py_process_utilities" / "package.py"
    recipe.write_text(recipe.read_text().replace("class PyPsutil", "class PyProcessUtilities"))
    commit(root, "py-psutil: rename to py-process-utilities")

    checkout = copy_checkout(tmp_path / "hvd")
    versions = checkout.root / "ci" / "versions.yaml"
    known = pinned().pair(pair)
    text = versions.read_text().replace(known.spack.commit, pins["spack"])
    versions.write_text(text.replace(known.packages.commit, pins["packages"]))
    (checkout.root / ".venv").symlink_to(venv)
    commit(checkout.root)
    variables = {kind.upper(): str(place) for kind, place in repositories.items()}
    words = [checkout.root / "scripts" / "canary.sh", ENVIRONMENT]
    output = checkout.run(words, status=1, PAIR=pair, **variables)
    report = (checkout.state / "canary" / "report.md").read_text()
    # when no pinned Spack needs it any more, ci/spack-has-provider.patch can go
    assert ("does not need" in report) == (known.spack.version != "1.2"), output
    assert f"broken: {ENVIRONMENT}\n" in report, output
    assert report.endswith("py-psutil: rename to py-process-utilities\n"), output
    # no solution of the checkout has changed
    assert not (checkout.root / "environments" / ENVIRONMENT / "spack.lock").exists()
