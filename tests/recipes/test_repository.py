"""The package repository loads in each of the ways people use, with every chosen pair."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

from hvd.core import paths, process
from hvd.solve import queries
from hvd.solve.spack import _FOREIGN

#: Every package of this repository, as Spack spells them.
OURS = sorted(path.parent.name.replace("_", "-") for path in paths.PACKAGES.glob("*/package.py"))


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
    environment = {k: v for k, v in os.environ.items() if k not in _FOREIGN}
    environment.update(spack.variables())
    environment["SPACK_USER_CONFIG_PATH"] = str(scope)
    environment["SPACK_USER_CACHE_PATH"] = str(tmp_path / "cache")

    def run(*arguments):
        log = tmp_path / "spack.log"
        command = [spack.root / "bin" / "spack", "--color=never", *arguments]
        return process.run(command, log=log, env=environment, timeout=300).output

    return run


def assert_known(run, *scope):
    assert "py-horovod" in run(*scope, "list", "-r", "hvd", "py-horovod").split()
    assert "0.28.1" in run(*scope, "versions", "--safe", "py-horovod").split()
    # the module beside package.py is imported with it
    assert "Warning" not in run(*scope, "repo", "list")


def test_by_path(bare, checkout):
    bare("repo", "add", checkout.root / "spack_repo" / "hvd")
    assert_known(bare)


def test_by_git_url(bare, checkout):
    git = ["git", "-C", checkout.root, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    bare("repo", "add", "--name", "hvd", f"file://{checkout.root}")
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
    done = spack.run("audit", "packages", *OURS, log=tmp_path / "log", timeout=300)
    assert "PKG-" in done.output
    assert "issue" not in done.output


def test_style_is_that_of_builtin(spack):
    """`spack style` cannot be told of another repository: ruff with builtin's settings can."""
    ruff = [sys.executable, "-m", "ruff"]
    settings = ["--config", spack.packages / "pyproject.toml"]
    settings += paths.PACKAGES.glob("*/package.py")
    for words in (["check"], ["format", "--check"]):
        done = subprocess.run([*ruff, *words, *settings], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_recipes_without_a_source(spack, tmp_path):
    """No solver builds them; an attempt to install says what to do; Intel MPI is an MPI."""
    program = pathlib.Path(__file__).with_name("describe_externals.py")
    done = spack.run("python", program, log=tmp_path / "log", timeout=300)
    said = json.loads(done.output.splitlines()[-1])
    for name in ("ibm-ddl", "intel-mpi"):
        (message,) = said["refused"][name]
        assert "name an installation in packages.yaml" in message
    for name, version in (("ibm-ddl", "1.5.0"), ("intel-mpi", "2018.2.199")):
        assert "packages.yaml" in said["install"][name]
        assert f"- spec: {name}@{version}" in said["install"][name]
    assert "intel-mpi" in said["mpi"]


LOOK_UP = """
import pkgutil, sys
for name in sys.argv[1:]:
    pkgutil.resolve_name(name)
"""


def test_spack_has_every_interface_that_the_queries_use(spack, tmp_path):
    program = tmp_path / "look_up.py"
    program.write_text(LOOK_UP)
    spack.run("python", program, *queries.INTERFACES, log=tmp_path / "log", timeout=300)
