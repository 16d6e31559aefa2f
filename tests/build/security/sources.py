"""Run programs of this directory with the Python code of a Horovod that is not built."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

from tests import checkout

HERE = pathlib.Path(__file__).parent
#: The variants for which the recipe has all its security patches.
VARIANTS = "+mpi+gloo frameworks=pytorch ^py-torch@2.13"


def run(tree: pathlib.Path, program: str, *arguments: object, **environment: object) -> str:
    """The output of a program of this directory, run with the ``horovod`` of ``tree``."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
        **{name: str(value) for name, value in environment.items()},
    }
    command = [sys.executable, HERE / program, *arguments]
    return checkout.run(command, env=variables, stdin=subprocess.DEVNULL, timeout=300)


def outcome(output: str) -> dict:
    """The JSON on the last line that a program printed."""
    return json.loads(output.strip().rpartition("\n")[2])


def command(directory: pathlib.Path, name: str) -> None:
    """Make a program of this directory a command in ``directory``."""
    line = f'PYTHONPATH="{HERE}:$PYTHONPATH" exec "{sys.executable}" "{HERE / name}.py" "$@"'
    checkout.script(directory / name, line)
