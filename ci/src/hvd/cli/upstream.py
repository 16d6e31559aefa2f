"""``./hvd upstream``."""

from __future__ import annotations

import pathlib

from hvd.cli.common import option
from hvd.core import console, paths
from hvd.model.versions import pinned
from hvd.upkeep import upstream as upkeep


def upstream(
    to: pathlib.Path = option("--to DIR", "New directory for the mails.", ...),
    horovod: str = option(
        "--horovod PATH|URL",
        "Horovod's repository. \\[default: the official one]",
        envvar="HVD_HOROVOD",
    ),
) -> None:
    """Write the patches as mails for Horovod's newest commit, ready for a person to send.

    Nothing is sent. docs/upstream.md lists all patches, with those for other projects.
    """
    log = paths.state() / "logs" / "upstream.log"
    taken, left = upkeep.series(horovod or pinned().git["horovod"], to, log)
    console.note(f"{len(taken)} patches: {to}")
    for name in left:
        console.note(f"{name} does not apply to the newest commit")
