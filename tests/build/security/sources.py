"""Horovod's Python code of a version, as released and with our patches, run as it is."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

from hvd.model import specs

HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Source:
    """A source tree; nothing in it is compiled."""

    tree: pathlib.Path

    def run(self, program: str, *arguments: object, **environment: object) -> str:
        """Run a program of this directory with the tree's ``horovod``; its output."""
        variables = {
            **os.environ,
            "PYTHONPATH": str(self.tree),
            "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "ignore",
            **{name: str(value) for name, value in environment.items()},
        }
        done = subprocess.run(
            [sys.executable, HERE / program, *map(str, arguments)],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


def outcome(output: str) -> dict:
    """The JSON on the last line that a program printed."""
    return json.loads(output.strip().rpartition("\n")[2])


def program(directory: pathlib.Path, name: str) -> None:
    """Put a program of this directory into ``directory`` under its name as a command."""
    directory.mkdir(exist_ok=True)
    command = directory / name
    command.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH="{HERE}:$PYTHONPATH" exec "{sys.executable}" "{HERE / name}.py" "$@"\n'
    )
    command.chmod(0o755)


def released(horovod_tree, version: str) -> Source:
    """The version as it was released."""
    return Source(horovod_tree(version))


def patched(py_horovod, horovod_tree, version: str) -> Source:
    """The version with the patches that our recipe has for it."""
    spec = specs.parse(f"py-horovod@{version} +mpi+gloo frameworks=pytorch ^py-torch@2.13")
    return Source(horovod_tree(version, *py_horovod.patches(spec)))
