"""Tiers, and what they need."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from xdist.scheduler import LoadScopeScheduling

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.fetch import source
from hvd.model import recipe
from hvd.model.versions import pinned
from hvd.solve import spack as spack_module
from hvd.solve.spack import Sources, Spack

#: Directory below tests/ to the tier that --require names; the longest one counts.
TIERS = {tier: tier for tier in ("build", "bundle", "compile", "container")}
TIERS.update({"recipes": "spack", "build/services": "services"})


#: Tiers that take long, and run where they are asked for.
ON_DEMAND = ("services", "bundle", "compile", "container")


def tier(path: pathlib.Path) -> str:
    """The tier of a file of tests; empty for those that need nothing."""
    parents = path.relative_to(pathlib.Path(__file__).parent).parents
    return next((TIERS[str(each)] for each in parents if str(each) in TIERS), "")


#: The group of the tests that share what was really built.
BUILT = "built"


@functools.cache
def group(file: str) -> str:
    """What one process runs: the files with tests of the builds, or else one file."""
    return BUILT if re.search(r"\bbuilt_\w+", (paths.ROOT / file).read_text()) else file


class ByGroup(LoadScopeScheduling):
    """Hand out tests to several processes by group; what is made for one is made once."""

    def _split_scope(self, nodeid):
        return group(nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config, log):
    return ByGroup(config, log)


@functools.cache
def give_way() -> None:
    """Leave the cores to the process that builds, which all the others wait for in the end."""
    os.nice(5)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    if "PYTEST_XDIST_WORKER" in os.environ and group(item.location[0]) != BUILT:
        give_way()


def pytest_addoption(parser):
    parser.addoption("--require", default="", help="comma-separated tiers that must run")
    parser.addoption(
        "--pairs",
        default=pinned().pairs[0].name,
        help="comma-separated pairs of Spack and packages to solve and build with, or 'all'",
    )


def pytest_collection_modifyitems(config, items):
    """A required tier that is not even collected is missing; one that takes long is required."""
    # what takes longest begins first
    items.sort(key=lambda item: group(str(item.path.relative_to(paths.ROOT))) != BUILT)
    required = set(filter(None, config.getoption("--require").split(",")))
    missing = required - {tier(item.path) for item in items}
    if missing:
        message = f"no test of the required tier '{min(missing)}' was collected"
        if not hasattr(config, "workeroutput"):
            raise pytest.UsageError(message)
        # a process of several would end as if it had crashed
        config.workeroutput[_MISSING] = message
        items.clear()
    for item in items:
        its = tier(item.path)
        if its in ON_DEMAND and its not in required:
            reason = f"tier '{its}': it takes long, and is asked for by --require {its}"
            item.add_marker(pytest.mark.skip(reason=reason))


#: Under which a process says what keeps the tests from being run.
_MISSING = "hvd_missing"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take over what one of several processes said."""
    message = getattr(node, "workeroutput", {}).get(_MISSING)
    if message:
        node.config.hvd_missing = message


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if hasattr(session.config, _MISSING):
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(terminalreporter, config):
    if hasattr(config, _MISSING):
        terminalreporter.write_line(f"ERROR: {config.hvd_missing}", red=True)


def chosen_pairs(config) -> list:
    """Names of the pairs of ``--pairs``."""
    asked = config.getoption("--pairs")
    return [pair.name for pair in pinned().pairs] if asked == "all" else asked.split(",")


def unmet(config, tier: str, reason: str):
    """Skip for want of a tier's need, or fail where the tier is required."""
    if tier in config.getoption("--require").split(","):
        pytest.fail(f"tier '{tier}' is required: {reason}", pytrace=False)
    pytest.skip(f"tier '{tier}': {reason}")


@pytest.fixture(scope="session")
def find_spack(request, tmp_path_factory):
    """A function that gives the isolated Spack of a pair, or skips."""
    found = {}

    def find(name: str) -> Spack:
        if name not in found:
            log = tmp_path_factory.mktemp(name) / "log"
            try:
                found[name] = spack_module.locate(Sources(pair=name), log)
            except HvdError as error:
                found[name] = error
        if isinstance(found[name], HvdError):
            unmet(request.config, "spack", found[name].message)
        return found[name]

    return find


@pytest.fixture(scope="session")
def py_horovod():
    """The recipe, read without Spack."""
    return recipe.load("py-horovod")


@pytest.fixture(scope="session")
def horovod_tree(py_horovod, tmp_path_factory, request):
    """A function that unpacks Horovod's sdist of a version anew, and applies patch files."""

    def tree(version: str, *patches: pathlib.Path) -> pathlib.Path:
        try:
            sdist = source.sdist(py_horovod, version)
        except HvdError as error:
            unmet(request.config, "build", error.message)
        directory = tmp_path_factory.mktemp(f"horovod-{version}")
        unpacked = source.unpack(sdist, directory / "source")
        source.patch(unpacked, patches, directory / "log")
        return unpacked

    return tree


@dataclasses.dataclass(frozen=True)
class Checkout:
    """A copy of this checkout, with a ``.hvd`` of its own; run by this process's Python."""

    root: pathlib.Path

    def command(self, *arguments: object) -> list:
        return [sys.executable, "-m", "hvd", *map(str, arguments)]

    def environment(self, **changes: str) -> dict:
        return {**os.environ, "PYTHONPATH": str(self.root / "ci" / "src"), **changes}

    def hvd(self, *arguments: object, **changes: str) -> subprocess.CompletedProcess:
        """Run ``./hvd`` in the copy; its output is captured."""
        return self.run(self.command(*arguments), **changes)

    def shell(self, program: str) -> subprocess.CompletedProcess:
        """Run a line of shell in the copy; its output is captured."""
        return self.run(["bash", "-c", program])

    def run(self, command: list, **changes: str) -> subprocess.CompletedProcess:
        """Run ``command`` in the copy; its output is captured."""
        return subprocess.run(
            command,
            cwd=self.root,
            env=self.environment(**changes),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def copy_checkout(destination: pathlib.Path) -> Checkout:
    """Copy what git tracks, or would track, to ``destination``."""
    listed = subprocess.run(
        ["git", "-C", paths.ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        target = destination / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(paths.ROOT / name, target, follow_symlinks=False)
    return Checkout(destination)
