"""What the tests of ./hvd launch share."""

from __future__ import annotations

import dataclasses
from typing import Any

from hvd.launch.request import Request
from hvd.model import site

#: Two nodes, as Slurm writes them.
TWO_NODES = "nid[001140-001141]"
CONDA = "/sw/summit/ibm-wml-ce/anaconda-base"


@dataclasses.dataclass(frozen=True)
class Done:
    """A command that is over."""

    status: int
    out: str
    err: str


def launch(environment: str, **values: Any) -> Request:
    """A request for ``environment`` with the site's defaults."""
    machine = site.of(environment)
    partition = machine.partitions[machine.environments[environment].partition]
    defaults = {"nodes": 1, "ranks_per_node": partition.default_ranks, "method": machine.launcher}
    return Request(machine, environment, partition, **{**defaults, **values})
