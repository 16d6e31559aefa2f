"""Run programs on ranks with the Horovod that a cell has built."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
from typing import Any, List, Mapping, Sequence

from hvd.core import process
from hvd.smoke.launch import LAUNCHERS, Launcher, Target, environment, find_program

#: One launcher for each controller.
_LAUNCHERS = ("mpirun", "horovodrun --gloo")


@dataclasses.dataclass(frozen=True)
class Ranks:
    """The Horovod of a cell, its controllers as variants, a scratch directory and a log."""

    target: Target
    variants: str
    scratch: pathlib.Path
    log: pathlib.Path

    @property
    def launchers(self) -> List[Launcher]:
        """One launcher for each controller that was built, MPI's first."""
        named = [each for each in LAUNCHERS if each.name in _LAUNCHERS]
        return [each for each in named if f"+{each.controller}" in self.variants]

    def run(
        self,
        launcher: Launcher,
        count: int,
        arguments: Sequence[object],
        variables: Mapping[str, str],
        timeout: float,
        **options: Any,
    ) -> str:
        """Run Python on ``count`` ranks for at most ``timeout`` seconds.

        Returns:
            What they printed.

        Raises:
            CommandFailed: as `hvd.core.process.run`, which takes the ``options``.
        """
        command = launcher.command(find_program(self.target, launcher.program), count)
        return process.run(
            [*command, self.target.python, *arguments],
            log=self.log,
            env={**environment(launcher, self.target, timeout), **variables},
            timeout=timeout,
            **options,
        ).output


def built(state: pathlib.Path, engine: str) -> Target:
    """Return the Horovod that ``engine`` built in the directory ``state``."""
    # its bill of materials is beside it
    (file,) = (state / "built").glob(f"*-{engine}.json")
    variables = {**process.clean_environment(), **json.loads(file.read_text())["variables"]}
    python = shutil.which("python", path=variables["PATH"])
    return Target(pathlib.Path(python or "python"), variables)
