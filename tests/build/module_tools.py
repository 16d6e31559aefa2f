"""What shells of a module tool have."""

from __future__ import annotations

import re
import subprocess
from typing import Dict, List

from hvd.rehearse import module_tools
from hvd.rehearse.module_tools import ModuleTool
from tests import needs

#: A tool's own records of what is loaded; nothing of the user's.
RECORDS = re.compile(
    "LOADEDMODULES|_LMFILES_|_ModuleTable|__LMOD_|LMOD_|__MODULES_|MODULEPATH$|MODULES_"
)


def install(name: str) -> ModuleTool:
    """Return a module tool; skips where its packages cannot be fetched."""
    with needs.provided():
        return module_tools.install(name)


def environment(done: subprocess.CompletedProcess, mark: str) -> Dict[str, str]:
    """The variables that ``echo MARK; env -0; echo`` printed, without the shell's own."""
    blob = done.stdout.partition(f"{mark}\n")[2].partition("\n\0end\n")[0]
    pairs: List[str] = [entry for entry in blob.split("\0") if "=" in entry]
    found = dict(entry.split("=", 1) for entry in pairs)
    return {k: v for k, v in found.items() if k not in ("_", "SHLVL", "PWD", "OLDPWD")}


def show(mark: str) -> str:
    """A line of shell that prints the environment for :func:`environment`."""
    return f"echo {mark}; env -0; printf '\\n\\0end\\n'"


def users(variables: Dict[str, str]) -> Dict[str, str]:
    """``variables`` without the module tool's own."""
    return {name: value for name, value in variables.items() if not RECORDS.match(name)}
