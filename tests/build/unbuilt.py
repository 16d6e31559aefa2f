"""Horovod's Python code as it stands in the patched sources, run without building anything."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
from typing import Dict, Mapping

#: Stubs of packages that Horovod's launchers import, and that these tests can do without.
STUBS = {
    "cloudpickle.py": "from pickle import dumps, loads\n",
    "six/__init__.py": (
        "from io import StringIO\nfrom . import moves\n"
        "def iteritems(mapping):\n    return iter(mapping.items())\n"
    ),
    "six/moves.py": (
        "import queue, socketserver, http.server as BaseHTTPServer\n"
        "SimpleHTTPServer = BaseHTTPServer\n"
    ),
}
#: For releases that are not meant to run without it.
DISTUTILS = {
    "distutils/__init__.py": "",
    "distutils/version.py": "from packaging.version import Version as LooseVersion\n",
    "distutils/spawn.py": "from shutil import which as find_executable\n",
}


@dataclasses.dataclass
class Unbuilt:
    """A source tree of Horovod, and a directory of its own for stubs and fake programs."""

    tree: pathlib.Path
    scratch: pathlib.Path
    stubs: Mapping[str, str] = dataclasses.field(default_factory=lambda: {**STUBS, **DISTUTILS})
    python: str = sys.executable

    def __post_init__(self):
        for name, text in self.stubs.items():
            self.write("stubs", name, text)
        (self.scratch / "bin").mkdir()
        (self.scratch / "tmp").mkdir()

    def write(self, directory: str, name: str, text: str) -> pathlib.Path:
        """Write a file below the scratch directory."""
        path = self.scratch / directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def fake(self, name: str, version: str = "") -> pathlib.Path:
        """Put a program on PATH that notes its arguments, one in a line, in the file returned.

        Its environment comes into a file with the suffix ``.environment``.

        Args:
            version: what it prints when asked for ``--version``.
        """
        record = self.scratch / f"{name}-arguments"
        program = self.write(
            "bin",
            name,
            f'#!/bin/sh\nif [ "$1" = --version ]; then\ncat <<"END"\n{version}\nEND\n'
            f"else\nprintf '%s\\n' \"$@\" > {record}\nenv > {record}.environment\nfi\n",
        )
        program.chmod(0o755)
        return record

    def run(self, program: str, *arguments: object, **variables: str):
        """Run ``program``, which is Python, with the tree's horovod; give the finished process."""
        environment: Dict[str, str] = {
            "HOME": str(self.scratch),
            "PATH": os.pathsep.join([str(self.scratch / "bin"), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(self.tree), str(self.scratch / "stubs")]),
            "TMPDIR": str(self.scratch / "tmp"),
            **variables,
        }
        return subprocess.run(
            [self.python, "-c", program, *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
        )
