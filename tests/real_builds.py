"""One checkout in which everything is really built, once for all tests."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
from typing import Dict, List

import pytest

from hvd.smoke.launch import Target
from tests.checkout import Checkout, copy_checkout
from tests.conftest import chosen_pairs, locate_spack

#: Seconds after the beginning of a stage at which ``./hvd run`` is killed in it; what setup and
#: smoke do is the same for both engines.
KILLS = {
    "pip": {"setup": 6.0, "concretize": 0.0, "build": 10.0, "smoke": 6.0},
    "spack": {"concretize": 6.0, "build": 15.0},
}


def target(record: pathlib.Path) -> Target:
    """A built Horovod and the environment to run it in, from its build record."""
    variables: Dict[str, str] = dict(os.environ)
    variables.pop("PYTHONPATH", None)  # that of these tests
    variables.update(json.loads(record.read_text())["variables"])
    # others would spin on cores that other tests need
    variables["OMP_NUM_THREADS"] = "1"
    return Target(pathlib.Path(shutil.which("python", path=variables["PATH"])), variables)


@dataclasses.dataclass
class Attempt:
    """One ``./hvd run``: the stage it was killed in, if any, its status and its output."""

    killed_in: str
    status: int
    output: str


@dataclasses.dataclass
class Built:
    """A build that was killed once in each stage and then finished."""

    checkout: Checkout
    engine: str
    attempts: List[Attempt]

    @property
    def report(self) -> pathlib.Path:
        return self.checkout.state / "reports" / f"local-hvd-{self.engine}"

    @property
    def record(self) -> pathlib.Path:
        return self.checkout.state / "built" / f"local-hvd-{self.engine}.json"

    @property
    def target(self) -> Target:
        return target(self.record)

    def hvd(self, command: str, *arguments: object, status: int = 0, **changes: str) -> str:
        """Run ``./hvd COMMAND local-hvd`` with the engine of this build."""
        words = [command, "local-hvd", f"--engine={self.engine}", *arguments]
        return self.checkout.hvd(*words, status=status, **changes)


def new_checkout(directory: pathlib.Path) -> Checkout:
    """A copy of the checkout, on a machine with a compiler."""
    for program in ("c++", "make"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not on PATH")
    return copy_checkout(directory / "hvd")


@pytest.fixture(scope="session")
def build_checkout(tmp_path_factory) -> Checkout:
    return new_checkout(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="session")
def built_by_pip(build_checkout) -> Built:
    return build(build_checkout, "pip")


@pytest.fixture(scope="session")
def built_by_spack(request, build_checkout, built_by_pip, tmp_path_factory) -> Built:
    # after pip, whose frameworks are taken over
    pair = chosen_pairs(request.config)[0]
    locate_spack(pair, tmp_path_factory.mktemp(pair) / "log")
    return build(build_checkout, "spack", f"--pair={pair}")


@pytest.fixture(scope="session")
def built_horovod(built_by_pip) -> Built:
    assert built_by_pip.attempts[-1].status == 0, built_by_pip.attempts[-1].output
    return built_by_pip


@dataclasses.dataclass
class BuiltFrom:
    """What ``./hvd build --spec`` has built."""

    record: pathlib.Path

    @property
    def target(self) -> Target:
        return target(self.record)


@pytest.fixture(scope="session")
def built_tensorflow(tmp_path_factory) -> BuiltFrom:
    """Horovod with TensorFlow and Keras 3, by pip, in a checkout of its own."""
    checkout = new_checkout(tmp_path_factory.mktemp("tensorflow"))
    spec = "py-horovod frameworks=tensorflow"
    checkout.hvd("build", "local-hvd", "--engine=pip", f"--spec={spec}")
    (record,) = (checkout.state / "built").glob("*-pip.json")
    return BuiltFrom(record)


@pytest.fixture(params=["pip", "spack"])
def built(request) -> Built:
    """The build of each engine in turn."""
    return request.getfixturevalue(f"built_by_{request.param}")


def build(checkout: Checkout, engine: str, *options: str) -> Built:
    """Kill ``./hvd run`` once in each stage of `KILLS`, then let it finish."""
    command = checkout.command("run", "local-hvd", f"--engine={engine}", *options)
    attempts = [attempt(checkout, command, *kill) for kill in KILLS[engine].items()]
    return Built(checkout, engine, [*attempts, attempt(checkout, command)])


def attempt(checkout: Checkout, command: list, stage: str = "", after: float = 0.0) -> Attempt:
    """Run ``command``, and kill it ``after`` seconds after ``stage`` began, if one is named."""
    process = subprocess.Popen(
        command,
        cwd=checkout.root,
        env=checkout.environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if stage and line.strip() == stage:
            time.sleep(after)
            process.send_signal(signal.SIGKILL)
            break
    status = process.wait()
    process.stdout.close()
    return Attempt(stage, status, "".join(lines))
