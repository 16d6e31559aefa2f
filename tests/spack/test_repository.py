"""The package repository loads in each of the ways people use, with every chosen pair."""

import json
import sys

import archspec.cpu
import pytest
import yaml

from hvd.core import paths
from hvd.model import recipe
from tests.checkout import commit, git, run
from tests.spack.conftest import variables

#: Every package of this repository, as Spack spells them.
OWN = sorted(path.parent.name.replace("_", "-") for path in paths.PACKAGES.glob("*/package.py"))


@pytest.fixture
def bare(spack, tmp_path):
    """A function that runs a Spack which does not know this repository yet."""
    scope = tmp_path / "config"
    scope.mkdir()
    for name in ("bootstrap", "packages"):
        (scope / f"{name}.yaml").write_text((spack.scope / f"{name}.yaml").read_text())
    config = yaml.safe_load((spack.scope / "config.yaml").read_text())
    config["config"]["environments_root"] = str(tmp_path / "environments")
    (scope / "config.yaml").write_text(yaml.safe_dump(config))
    builtin = yaml.safe_load((spack.scope / "repos.yaml").read_text())["repos"]["builtin"]
    (scope / "repos.yaml").write_text(yaml.safe_dump({"repos": {"builtin": builtin}}))
    program = [spack.root / "bin" / "spack", "--color=never"]
    environment = variables(spack, scope, tmp_path / "cache")
    return lambda *arguments: run([*program, *arguments], env=environment, timeout=300)


def assert_known(run, *scope):
    assert "py-horovod" in run(*scope, "list", "-r", "hvd", "py-horovod").split()
    assert "0.28.1" in run(*scope, "versions", "--safe", "py-horovod").split()
    # the module beside package.py is imported with it
    assert "Warning" not in run(*scope, "repo", "list")


def test_by_path(bare, checkout):
    bare("repo", "add", checkout.root / "spack_repo" / "hvd")
    assert_known(bare)


def test_by_git_url(bare, checkout):
    commit(checkout.root)
    bare("repo", "add", "--name", "hvd", f"file://{checkout.root}")
    assert_known(bare)


def test_by_the_tag_and_the_archive_of_a_release(bare, checkout, tmp_path):
    """What comes after the release is not seen."""
    commit(checkout.root)
    for name in ("name", "email"):
        git(checkout.root, "config", f"user.{name}", "t@example.org")
    run([checkout.root / "scripts" / "release.sh", "9.0.0"])
    git(checkout.root, "rm", "--quiet", "-r", "packages/py_horovod")
    git(checkout.root, "commit", "--quiet", "-m", "later")
    bare("repo", "add", "--name", "hvd", f"file://{checkout.root}")
    bare("repo", "update", "--tag", "v9.0.0", "hvd")
    assert_known(bare)
    bare("repo", "remove", "hvd")
    run(["tar", "xzf", checkout.state / "releases" / "9.0.0" / "hvd-9.0.0.tar.gz"], cwd=tmp_path)
    bare("repo", "add", tmp_path / "hvd-9.0.0" / "spack_repo" / "hvd")
    assert_known(bare)


def test_by_an_environment(bare, checkout):
    assert_known(bare, "-e", checkout.root / "environments" / "local-hvd")


def test_environments_are_activated_by_name(spack, tmp_path):
    done = spack.run("env", "activate", "--sh", "local-hvd", log=tmp_path / "log")
    assert "SPACK_ENV=" in done.output and "/environments/local-hvd" in done.output


def test_environments_can_be_tracked_by_people_with_a_spack_of_their_own(bare, checkout):
    bare("env", "track", "--name", "mine", checkout.root / "environments" / "local-hvd")
    assert "SPACK_ENV=" in bare("env", "activate", "--sh", "mine")
    assert_known(bare, "-e", "mine")


def test_our_recipe_is_the_one_that_is_found(spack, tmp_path):
    done = spack.run("location", "-p", "py-horovod", log=tmp_path / "log")
    assert "/packages/py_horovod" in done.output and "builtin" not in done.output


def test_audit_is_clean(spack, tmp_path):
    done = spack.run("audit", "packages", *OWN, log=tmp_path / "log", timeout=300)
    assert "PKG-" in done.output
    assert "issue" not in done.output


def test_style_is_that_of_builtin(spack):
    """`spack style` cannot be told of another repository: ruff with builtin's settings can."""
    ruff = [sys.executable, "-m", "ruff"]
    settings = ["--config", spack.packages / "pyproject.toml"]
    settings += paths.PACKAGES.glob("*/package.py")
    for words in (["check"], ["format", "--check"]):
        run([*ruff, *words, *settings])


#: Prints what Spack takes as processors and GPUs.
VALUES = """
import json
import spack.vendor.archspec.cpu as cpu
from spack_repo.builtin.build_systems import cuda, rocm
values = cuda.CudaPackage.cuda_arch_values, rocm.ROCmPackage.amdgpu_targets
print(json.dumps([*values, [*cpu.TARGETS]]))
"""


def test_processors_and_gpus_are_known_without_spack(spack, located, tmp_path):
    """To ``./hvd spec``; the packages of Spack 1.1 lack some."""
    (tmp_path / "values.py").write_text(VALUES)
    output = spack.run("python", tmp_path / "values.py", log=tmp_path / "log").output
    *found, targets = map(set, json.loads(output.splitlines()[-1]))
    known = [set(recipe.VALUES[name]) for name in ("cuda_arch", "amdgpu_target")]
    assert all(map(set.issubset, found, known)) and targets <= archspec.cpu.TARGETS.keys()
    assert located.pair.spack.version == "1.1" or found == known


#: Tries to install a recipe without a source, and prints what that says.
INSTALL = """
import sys, spack.error, spack.repo
from spack.spec import Spec
spec = Spec(sys.argv[1])
try:
    spack.repo.PATH.get_pkg_class(spec.name).install(object(), spec, "/nowhere")
except spack.error.SpackError as error:
    print(error.message)
"""


@pytest.mark.parametrize("spec", ["ibm-ddl@=1.5.0", "intel-mpi@=2018.2.199"])
def test_a_recipe_without_a_source(spack, evaluate, tmp_path, spec):
    """No solver builds it, and an attempt to install says what to do."""
    (message,) = evaluate([spec])[spec]
    assert "name an installation in packages.yaml" in message
    (tmp_path / "install.py").write_text(INSTALL)
    words = ["python", tmp_path / "install.py", spec]
    output = spack.run(*words, log=tmp_path / "log", timeout=300).output
    assert "packages.yaml" in output and f"- spec: {spec.replace('=', '')}" in output


def test_intel_mpi_is_an_mpi(spack, tmp_path):
    assert "intel-mpi" in spack.run("providers", "mpi", log=tmp_path / "log").output
