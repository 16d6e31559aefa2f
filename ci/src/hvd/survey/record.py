"""Ask the machine, and keep everything that it answers."""

from __future__ import annotations

import dataclasses
import datetime
import re
import shlex
import shutil
import subprocess
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

#: Seconds; a scheduler or a parallel file system may be busy.
_TIMEOUT = 300
#: Loads modules, one `module load` for each argument, and prints the variables.
_LOAD = 'for load in "$@"; do module load $load >&2 || exit; done; env -0'


@dataclasses.dataclass
class Record:
    """The commands of one visit to a machine, and their output.

    Args:
        shell: the variables of the shell that `./hvd` was called in.
    """

    shell: Mapping[str, str]
    entries: List[str] = dataclasses.field(default_factory=list)

    def has(self, program: str) -> bool:
        """Return whether ``program`` is on PATH."""
        return shutil.which(program, path=self.shell.get("PATH")) is not None

    def ask(self, *words: str) -> str:
        """Return what a command prints; empty if it is not there or fails.

        Some Slurms and module tools print to standard error.
        """
        status, out, error = self._run(words)
        ending = f"[exit status {status}]" if status else ""
        shown = words[2] if words[:2] == ("bash", "-c") else shlex.join(words)
        self.add(shown, "\n".join(filter(None, [out, error, ending])))
        return "" if status else out if out.strip() else error

    def module(self, *words: str) -> str:
        """Return what the command ``module`` prints, which is a function of the shell."""
        return self.ask("bash", "-c", shlex.join(["module", *words]))

    def load(self, loads: Sequence[Sequence[str]]) -> Optional[Dict[str, str]]:
        """Return the variables behind these ``module load``, or None if one fails."""
        lines = [" ".join(load) for load in loads]
        status, out, error = self._run(["bash", "-c", _LOAD, "bash", *lines])
        found = dict(each.split("=", 1) for each in out.split("\0") if "=" in each)
        if lines:
            # the other variables may hold secrets
            shown = "; ".join([*(f"module load {line}" for line in lines), "echo $LOADEDMODULES"])
            self.add(shown, f"{error}{found.get('LOADEDMODULES', '')}")
        # the older Environment Modules fail with status 0
        return None if status or re.search(r"\bERROR:", error) else found

    def add(self, command: str, output: str) -> None:
        """Keep the output of a command that someone else ran."""
        self.entries.append(f"$ {command}\n{output.rstrip()}\n")

    def text(self) -> str:
        """Return everything, with the time in the first line."""
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        return "\n".join([f"# asked by ./hvd site, {now}\n", *self.entries])

    def _run(self, words: Sequence[str]) -> Tuple[int, str, str]:
        """Return status, output and errors of a command."""
        try:
            done = subprocess.run(
                words,
                env=dict(self.shell),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return 127, "", str(error)
        return done.returncode, done.stdout, done.stderr


def places(variables: Mapping[str, str]) -> FrozenSet[str]:
    """Return every absolute path in the values of ``variables``."""
    return frozenset(
        word
        for value in variables.values()
        for word in value.split(":")
        if re.fullmatch(r"/[^\s=;(){}]+", word)
    )
