"""Copies of this checkout whose commands run in a root of another processor."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import pytest

from tests import debian_root
from tests.checkout import Checkout, copy_checkout


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


def make(name: str, scratch: pathlib.Path) -> Root:
    """Return the root called ``name``; skips where this machine cannot make it."""
    try:
        debian_root.make(name)
    except debian_root.RootError as error:
        pytest.skip(str(error))
    return Root(name, copy_checkout(scratch / "hvd"))
