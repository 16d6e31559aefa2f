"""What tests need of a machine: skip where it is missing."""

from __future__ import annotations

import contextlib
import shutil
from typing import Iterator

import pytest

from hvd.core.errors import HvdError


def programs(*names: str) -> pytest.MarkDecorator:
    """A mark that skips tests where one of these programs is not on PATH."""
    missing = [name for name in names if not shutil.which(name)]
    return pytest.mark.skipif(bool(missing), reason=f"not on PATH: {', '.join(missing)}")


@contextlib.contextmanager
def provided() -> Iterator[None]:
    """Skip where the block cannot get what it needs."""
    try:
        yield
    except HvdError as error:
        pytest.skip(error.message)
