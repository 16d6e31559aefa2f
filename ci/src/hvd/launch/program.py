"""Start the program in place of ``./hvd``: its status and signals are the program's."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Dict, Mapping

from hvd.core.errors import HvdError
from hvd.launch import methods
from hvd.launch.request import Request

#: What the script ``hvd`` changes for itself; and what it puts before the name to keep
#: the caller's.
CHANGED = ("PYTHONPATH", "PYTHONNOUSERSITE")
KEPT = "HVD_CALLER_"


def run(request: Request, environ: Mapping[str, str]) -> None:
    """Become the launcher.

    Raises:
        HvdError: we are in no job of the site's scheduler, or there is no such launcher.
    """
    site = request.site
    if site.scheduler != "none" and request.job is None:
        raise HvdError(
            f"--run: this is no job on {site.name}",
            "get nodes first (--allocate prints the command), or print a script with --batch",
        )
    words = methods.line(request)
    variables = environment(request, environ)
    program = shutil.which(words[0], path=variables.get("PATH"))
    if program is None:
        raise HvdError(
            f"{words[0]} is not on PATH", f"spack env activate {request.environment}; or load MPI"
        )
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program, words, variables)


def environment(request: Request, environ: Mapping[str, str]) -> Dict[str, str]:
    """The caller's environment with what the launcher and the fabric need and the user sets."""
    own = methods.choose(request).variables
    return {**own, **callers(environ), **request.fabric, **request.variables}


def callers(environ: Mapping[str, str]) -> Dict[str, str]:
    """``environ`` as it was before the script ``hvd`` changed it for itself."""
    kept = dict(environ)
    for name in CHANGED:
        kept.pop(name, None)
        value = kept.pop(f"{KEPT}{name}", None)
        if value is not None:
            kept[name] = value
    return kept
