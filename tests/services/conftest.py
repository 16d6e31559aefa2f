"""A Slurm cluster on this machine."""

from __future__ import annotations

import pathlib
import tempfile

import pytest

from tests.services import cluster


@pytest.fixture(scope="session")
def slurm():
    """A Slurm cluster of two nodes on this machine."""
    # not below pytest's directory: the path of a socket is short
    with tempfile.TemporaryDirectory(prefix="slurm-") as scratch:
        with cluster.started(pathlib.Path(scratch, "of")) as running:
            yield running
