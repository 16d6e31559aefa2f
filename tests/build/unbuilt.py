"""Horovod's Python code as it stands in the patched sources, run without building anything."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
from typing import Dict, Mapping

from tests.checkout import script

#: Stubs of modules that Horovod's launchers import, for releases that are not meant to run
#: without distutils.
STUBS = {
    "distutils/__init__.py": "",
    "distutils/version.py": "from packaging.version import Version as LooseVersion\n",
    "distutils/spawn.py": "from shutil import which as find_executable\n",
}


@dataclasses.dataclass
class Unbuilt:
    """A source tree of Horovod, and a directory of its own for stubs and fake programs."""

    tree: pathlib.Path
    scratch: pathlib.Path
    stubs: Mapping[str, str] = dataclasses.field(default_factory=lambda: STUBS)
    python: str = sys.executable

    def __post_init__(self):
        for name, text in self.stubs.items():
            path = self.scratch / "stubs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.scratch / "bin").mkdir()
        (self.scratch / "tmp").mkdir()

    def fake(self, name: str, version: str = "") -> pathlib.Path:
        """Put a program on PATH that writes its arguments, one in a line, to the file returned.

        Its environment goes to a file with the suffix ``.environment``.

        Args:
            version: what it prints when asked for ``--version``.
        """
        record = self.scratch / f"{name}-arguments"
        script(
            self.scratch / "bin" / name,
            f'if [ "$1" = --version ]; then\ncat <<"END"\n{version}\nEND\nelse',
            f"printf '%s\\n' \"$@\" > {record}\nenv > {record}.environment\nfi",
        )
        return record

    def run(self, program: str, *arguments: object, **variables: str) -> str:
        """The standard output of a program in Python with the tree's horovod.

        Raises:
            AssertionError: it fails; has its standard error.
        """
        environment: Dict[str, str] = {
            "HOME": str(self.scratch),
            "PATH": os.pathsep.join([str(self.scratch / "bin"), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(self.tree), str(self.scratch / "stubs")]),
            "TMPDIR": str(self.scratch / "tmp"),
            **variables,
        }
        done = subprocess.run(
            [self.python, "-c", program, *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
