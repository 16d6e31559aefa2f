"""What the tests of ./hvd launch share."""

from __future__ import annotations

import pathlib

from hvd.launch.request import make as launch  # noqa: F401

#: Two nodes, as Slurm writes them.
TWO_NODES = "nid[001140-001141]"


def stand_in(directory: pathlib.Path, name: str, text: str = "") -> None:
    """Write a program that notes in ``calls`` how it was called, and then does ``text``."""
    script = directory / name
    script.write_text(
        f'#!/bin/bash\nprintf "%s|" {name} "$@" >> {directory}/calls\n'
        f'echo "$NCCL_NET|$SLURM_CPU_BIND|${{PYTHONPATH-none}}" >> {directory}/calls\n{text}\n'
    )
    script.chmod(0o755)
