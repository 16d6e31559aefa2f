"""A Slurm cluster of two nodes on this machine; skips where it cannot be started."""

from __future__ import annotations

import contextlib
import pathlib
from typing import Iterator, Mapping

from hvd.rehearse import cluster
from hvd.rehearse.cluster import Cluster
from tests import needs


@contextlib.contextmanager
def started(directory: pathlib.Path, changes: Mapping[str, str] = {}) -> Iterator[Cluster]:
    """See :func:`hvd.rehearse.cluster.started`."""
    with contextlib.ExitStack() as stack:
        with needs.provided():
            running = stack.enter_context(cluster.started(directory, changes))
        yield running
