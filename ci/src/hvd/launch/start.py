"""Start the program in place of ``./hvd``: its status and signals are the program's."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Dict, Mapping

from hvd.core.errors import HvdError
from hvd.launch import methods
from hvd.launch.request import Request

#: The variables that the script ``hvd`` changes for itself, and the prefix under which it keeps
#: the caller's.
CHANGED = ("PYTHONPATH", "PYTHONNOUSERSITE")
KEPT = "HVD_CALLER_"


def run(request: Request, environ: Mapping[str, str]) -> None:
    """Exec the launcher."""
    if request.site.scheduler != "none" and request.job is None:
        raise HvdError(
            f"--run: this is no job on {request.site.name}",
            "get nodes first (--allocate prints the command), or print a script with --batch",
        )
    words = [*methods.words(request), *request.program]
    variables = environment(request, environ)
    launcher = shutil.which(words[0], path=variables.get("PATH"))
    if launcher is None:
        hint = f"spack env activate {request.environment}; or load MPI"
        raise HvdError(f"{words[0]} is not on PATH", hint)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(launcher, words, variables)


def environment(request: Request, environ: Mapping[str, str]) -> Dict[str, str]:
    """The caller's environment with the launcher's, the network's and the user's variables."""
    own = methods.variables(request)
    if request.torch:
        own["MASTER_ADDR"] = methods.first_host(request)
    return {**own, **callers(environ), **request.fabric, **request.variables}


def callers(environ: Mapping[str, str]) -> Dict[str, str]:
    """``environ`` as it was before the script ``hvd`` changed it for itself."""
    kept = {
        name: value
        for name, value in environ.items()
        if name not in CHANGED and not name.startswith(KEPT)
    }
    for name in CHANGED:
        if f"{KEPT}{name}" in environ:
            kept[name] = environ[f"{KEPT}{name}"]
    return kept
