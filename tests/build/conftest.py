"""One checkout in which everything is really built, once for all tests of this tier."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Dict, List

import pytest

from hvd.deliver.publish import store
from hvd.model import specs
from hvd.model.check_build import Expectation
from hvd.smoke.launch import Target
from tests.build import cluster, module_tools
from tests.build.security import sources
from tests.conftest import Checkout, chosen_pairs, copy_checkout, unmet

#: Seconds after the beginning of a stage at which ``./hvd run`` is killed in it; what setup and
#: smoke do is the same for both engines.
KILLS = {
    "pip": {"setup": 6.0, "concretize": 0.0, "build": 10.0, "smoke": 6.0},
    "spack": {"concretize": 6.0, "build": 15.0},
}
#: What `local-hvd` asks for.
EXPECTED = Expectation(
    version="0.28.1",
    frameworks=frozenset({"pytorch"}),
    controllers=frozenset({"mpi", "gloo"}),
    operations=frozenset({"mpi", "gloo"}),
)


@dataclasses.dataclass
class Attempt:
    """One ``./hvd run``: the stage it was killed in, if any, its status and its output."""

    killed_in: str
    status: int
    output: str


@dataclasses.dataclass
class Built:
    """What was left when a run had been killed in each stage and then let finish."""

    checkout: Checkout
    engine: str
    attempts: List[Attempt]
    expectation: Expectation = EXPECTED

    @property
    def report(self) -> pathlib.Path:
        return self.checkout.root / ".hvd" / "reports" / f"local-hvd-{self.engine}"

    @property
    def target(self) -> Target:
        """The built Horovod, and the environment to run it in."""
        file = self.checkout.root / ".hvd" / "built" / f"local-hvd-{self.engine}.json"
        activation = json.loads(file.read_text())["variables"]
        variables: Dict[str, str] = {**os.environ, **activation}
        variables.pop("PYTHONPATH" if self.engine == "pip" else "", None)
        return Target(pathlib.Path(shutil.which("python", path=variables["PATH"])), variables)


@pytest.fixture(scope="session")
def tree(py_horovod, horovod_tree):
    """A function that gives the patched sources of a version."""
    trees = {}

    def patched(version):
        if version not in trees:
            spec = specs.parse(f"py-horovod@{version} +mpi+gloo frameworks=pytorch")
            trees[version] = horovod_tree(version, *py_horovod.patches(spec))
        return trees[version]

    return patched


@pytest.fixture(scope="session")
def build_checkout(request, tmp_path_factory):
    """A copy of the checkout, where a compiler and the like are at hand."""
    for program in ("c++", "make"):
        if not shutil.which(program):
            unmet(request.config, "build", f"{program} is not on PATH")
    return copy_checkout(tmp_path_factory.mktemp("build") / "hvd")


@pytest.fixture(scope="session")
def built_by_pip(build_checkout) -> Built:
    return build(build_checkout, "pip")


@pytest.fixture(scope="session")
def built_by_spack(request, build_checkout, built_by_pip, find_spack) -> Built:
    # after pip, whose frameworks are taken over
    pair = chosen_pairs(request.config)[0]
    find_spack(pair)
    return build(build_checkout, "spack", f"--pair={pair}")


@pytest.fixture(scope="session")
def built_horovod(built_by_pip) -> Built:
    assert built_by_pip.attempts[-1].status == 0, built_by_pip.attempts[-1].output
    return built_by_pip


def build(checkout: Checkout, engine: str, *options: str) -> Built:
    """Kill ``./hvd run`` once in each stage of `KILLS`, then let it finish."""
    arguments = ["run", "local-hvd", f"--engine={engine}", *options]
    attempts = [
        run_and_kill(checkout, arguments, stage, after) for stage, after in KILLS[engine].items()
    ]
    done = checkout.hvd(*arguments)
    attempts.append(Attempt("", done.returncode, done.stdout))
    return Built(checkout, engine, attempts)


def run_and_kill(checkout: Checkout, arguments: List[str], stage: str, after: float) -> Attempt:
    """Start ``./hvd``, and kill it ``after`` seconds after ``stage`` began."""
    process = subprocess.Popen(
        checkout.command(*arguments),
        cwd=checkout.root,
        env=checkout.environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.strip() == stage:
            time.sleep(after)
            process.send_signal(signal.SIGKILL)
            break
    status = process.wait()
    process.stdout.close()
    return Attempt(stage, status, "".join(lines))


@pytest.fixture(scope="session")
def released(horovod_tree):
    """A function that gives the Python code of a version of Horovod as it was released."""
    return functools.lru_cache(None)(functools.partial(sources.released, horovod_tree))


@pytest.fixture(scope="session")
def patched(py_horovod, horovod_tree):
    """A function that gives the Python code of a version of Horovod with our patches."""
    return functools.lru_cache(None)(functools.partial(sources.patched, py_horovod, horovod_tree))


@pytest.fixture(params=store.TOOLS)
def tool(request) -> module_tools.ModuleTool:
    """A real module tool, each in turn."""
    try:
        return module_tools.install(request.param)
    except OSError as error:
        unmet(request.config, "build", f"{request.param}: {error}")


@pytest.fixture(scope="session")
def slurm(request):
    """A Slurm cluster of two nodes on this machine."""
    # not below pytest's directory: the path of a socket is short
    with tempfile.TemporaryDirectory(prefix="slurm-") as scratch:
        try:
            with cluster.started(pathlib.Path(scratch, "of")) as running:
                yield running
        except cluster.Unable as error:
            unmet(request.config, "services", f"Slurm: {error}")
