"""What the tests of ./hvd launch share."""

from __future__ import annotations

import dataclasses

from hvd.launch.request import make as launch  # noqa: F401

#: Two nodes, as Slurm writes them.
TWO_NODES = "nid[001140-001141]"
CONDA = "/sw/summit/ibm-wml-ce/anaconda-base"


@dataclasses.dataclass(frozen=True)
class Done:
    """A command that is over."""

    status: int
    out: str
    err: str
