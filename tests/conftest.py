"""The tiers, one for each directory, and the fixtures that several of them use."""

from __future__ import annotations

import functools
import os
import pathlib
import re
from typing import Optional

import pytest

from hvd.cli.testing import TIERS
from hvd.core.options import Sources
from hvd.fetch import source
from hvd.model import recipe, specs
from hvd.model.versions import pinned
from hvd.solve import location
from hvd.solve.spack import Spack
from tests import needs
from tests.checkout import run

pytest_plugins = ["tests.failures", "tests.real_builds"]

HERE = pathlib.Path(__file__).parent
#: Directories that belong to another tier.
PART_OF = {"training": "build"}
#: Fixtures that really build, and the group of the tests that need one: one process runs it.
BUILDS = {"built_tensorflow": "tensorflow", "build_checkout": "built", "built": "built"}
#: What `./hvd test` runs without options: the unit tier, and one real build with two ranks.
BY_DEFAULT = re.compile(r"tests/unit/|tests/build/test_run\.py::.*\[pip\]")
REST = "./hvd test --require unit,spack,build,services"


def tier(path: pathlib.Path) -> str:
    """The tier of a test file: the name of its directory below ``tests``, but for `PART_OF`."""
    name = path.relative_to(HERE).parts[0]
    return PART_OF.get(name, name)


def required(config) -> set:
    return set(filter(None, config.getoption("--require").split(",")))


def asked(config) -> set:
    """The tiers that are required, or whose files are named on the command line."""
    paths = [config.invocation_params.dir / each.partition("::")[0] for each in config.args]
    named = [path.resolve() for path in paths if HERE in path.resolve().parents]
    return required(config) | {tier(path) for path in named}


def pytest_addoption(parser):
    parser.addoption(
        "--require",
        default="",
        help=f"comma-separated tiers in which a skip is a failure: {', '.join(TIERS)}",
    )
    parser.addoption(
        "--pairs",
        default=pinned().pairs[0].name,
        help="comma-separated pairs of Spack and packages to solve and build with, or 'all'",
    )
    parser.addoption(
        "--write-results",
        action="store_true",
        help="keep the results of rehearsals with their environments, and in docs/rehearsals.md",
    )


def pytest_configure(config):
    """Refuse to run if a required tier is not among the tests that are asked for."""
    # a ./hvd of a test is no job
    os.environ.pop("CI", None)
    paths = [config.invocation_params.dir / each.partition("::")[0] for each in config.args]
    for name in required(config):
        directory = HERE / name
        if not any(directory.is_relative_to(p) or p.is_relative_to(directory) for p in paths):
            raise pytest.UsageError(f"the required tier '{name}' is not asked for")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Skip what nobody asked for; group the rest by file; begin with what takes longest."""
    for item in items:
        name = tier(item.path)
        if name not in asked(config) and not BY_DEFAULT.match(item.nodeid):
            reason = f"tier '{name}' runs on demand: --require {name}"
            item.add_marker(pytest.mark.skip(reason=reason))
        needed = {*item.fixturenames, *_names_of_fixtures(item)}
        groups = [group for fixture, group in BUILDS.items() if fixture in needed]
        # one process runs a file, whose fixtures are made once
        item.add_marker(pytest.mark.xdist_group([*groups, item.path.stem][0]))
    items.sort(key=lambda item: not _is_built(item))


def _names_of_fixtures(item) -> list:
    """Those that a test gets by name, and that it is parametrized with."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return [each for each in parameters if isinstance(each, str)]


def _is_built(item) -> bool:
    """Whether an item is of a group of tests that share real builds."""
    return item.get_closest_marker("xdist_group").args[0] in BUILDS.values()


def pytest_terminal_summary(terminalreporter, config):
    """Say how to run the rest."""
    if not asked(config):
        terminalreporter.write_line(f"This was the short run. The rest: {REST}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Give way to the processes that build, for which the others wait in the end."""
    if "PYTEST_XDIST_WORKER" in os.environ and not _is_built(item):
        os.setpriority(os.PRIO_PROCESS, 0, 5)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item):
    """Turn a skip in a required tier into a failure for the same reason."""
    report = yield
    if report.skipped and tier(item.path) in required(item.config):
        reason = report.longrepr[2]
        report.outcome = "failed"
        report.longrepr = f"tier '{tier(item.path)}' is required. {reason}"
    return report


def chosen_pairs(config) -> list:
    """Names of the pairs of ``--pairs``."""
    asked = config.getoption("--pairs")
    return [pair.name for pair in pinned().pairs] if asked == "all" else asked.split(",")


def locate_spack(pair: str, log: pathlib.Path) -> Spack:
    """The isolated Spack of a pair; skips where it cannot be fetched."""
    with needs.provided():
        return location.locate(Sources(pair=pair), log)


@pytest.fixture(scope="session")
def py_horovod():
    """The recipe, read without Spack."""
    return recipe.load("py-horovod")


def sdist(horovod: recipe.Recipe, version: str) -> pathlib.Path:
    """The archive of a release of Horovod; skips where it cannot be fetched."""
    with needs.provided():
        return source.sdist(horovod, version)


@pytest.fixture(scope="session")
def horovod_tree(py_horovod, tmp_path_factory):
    """A function that unpacks a version of Horovod anew.

    Without ``variants`` it is as it was released; with the variants of a spec, which may be
    empty, it has the recipe's patches for them.
    """

    @functools.cache
    def released(version: str) -> pathlib.Path:
        directory = tmp_path_factory.mktemp(f"released-{version}")
        unpacked = source.unpack(sdist(py_horovod, version), directory / "source")
        # nothing changes Boost, which has more than half of the files
        boost = unpacked / "third_party" / "boost"
        if boost.exists():
            boost.rename(directory / "boost")
            boost.symlink_to(directory / "boost")
        return unpacked

    def tree(version: str, variants: Optional[str] = None) -> pathlib.Path:
        directory = tmp_path_factory.mktemp(f"horovod-{version}")
        unpacked = directory / "source" / released(version).name
        run(["cp", "-a", released(version).parent, unpacked.parent])
        if variants is not None:
            spec = specs.parse(f"py-horovod@{version} {variants}")
            source.patch(unpacked, py_horovod.patches(spec), directory / "log")
        return unpacked

    return tree


@pytest.fixture(scope="session")
def shared_tree(horovod_tree):
    """Like `horovod_tree`, but unpacked once; for tests that change no file of it."""
    return functools.lru_cache(maxsize=None)(horovod_tree)
