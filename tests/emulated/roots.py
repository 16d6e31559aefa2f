"""Horovod built and run in a root of another processor."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import sys
from typing import Any, Dict, List

import pytest

from hvd.report import RunReport
from tests import debian_root
from tests.checkout import Checkout


@dataclasses.dataclass(frozen=True)
class Root:
    """A root by its name, and a copy of this checkout whose commands run in it."""

    name: str
    checkout: Checkout

    @property
    def state(self) -> pathlib.Path:
        """The directory that commands in the root see as ``.hvd``."""
        return self.checkout.state / "debian" / self.name / ".hvd"

    def run(self, *command: object) -> str:
        """Run ``command`` in the root and return its output; see `tests.checkout.run`."""
        script = self.checkout.root / "tests" / "debian_root.py"
        return self.checkout.run([sys.executable, script, self.name, "--", *command])


@dataclasses.dataclass(frozen=True)
class Built:
    """What ``./hvd run`` built there for ``target``, and what it printed."""

    root: Root
    target: str
    output: str

    @functools.cached_property
    def report(self) -> RunReport:
        (file,) = self.root.state.glob("reports/*/report.json")
        return RunReport.load(file)

    @property
    def checks(self) -> Dict[str, Dict[str, Any]]:
        """The checks of the smoke test by name."""
        return {str(each["name"]): each for each in self.report.checks}

    @property
    def compilations(self) -> List[str]:
        """The command lines that compile a source of Horovod or of what is in it."""
        (log,) = self.root.state.glob("logs/*/build/*pip-install-horovod.log")
        lines = log.read_text(errors="replace").splitlines()
        return [line for line in lines if "/c++ " in line and " -c /" in line]

    @property
    def libraries(self) -> List[pathlib.Path]:
        return list(self.root.state.glob("pip/*/venv/lib/python3*/site-packages/horovod/**/*.so"))


def make(name: str, checkout: Checkout) -> Root:
    """Return the root called ``name``; skips where this machine cannot make it."""
    try:
        debian_root.run(name, ["true"])
    except debian_root.RootError as error:
        pytest.skip(str(error))
    return Root(name, checkout)


def build(root: Root, target: str, engine: str = "pip") -> Built:
    """Build Horovod for ``target`` with Debian's PyTorch, and run the smoke test."""
    spec = f"py-horovod+mpi+gloo~cuda~rocm frameworks=pytorch target={target}"
    command = ["./hvd", "run", f"--engine={engine}", "--python=/usr/bin/python3", f"--spec={spec}"]
    return Built(root, target, root.run(*command))
