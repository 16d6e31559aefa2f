"""The one command that repeats a failed job on another machine."""

from __future__ import annotations

import os
import shlex
from typing import List, Mapping, Sequence

from hvd.core import paths
from hvd.fetch import clone
from hvd.host import machine
from hvd.model.versions import pinned

#: Variables that decide what a job does; others may hold secrets.
_VARIABLES = (
    "HVD_SPACK",
    "HVD_PACKAGES",
    "HVD_COMPILER_WRAPPER",
    "HVD_HOROVOD",
    paths.SITES_VARIABLE,
)
#: Jobs that need the artifacts of an earlier one, and what does the same by hand.
_BY_HAND = {"rebuild": "build", "smoke": "run"}


def lines(arguments: Sequence[str], variables: Mapping[str, str] = os.environ) -> List[str]:
    """Return what to print where ``./hvd`` with ``arguments`` has failed; empty for no job.

    GitHub, GitLab and others set ``CI`` in jobs.
    """
    if variables.get("CI") != "true":
        return []
    here = machine.describe()
    if here.get("root") in pinned().debian:
        # the ./hvd debian outside says it
        return []
    commit = clone.commit(paths.ROOT)
    steps = [["git", "checkout", commit]] if commit else []
    image = variables.get("CI_JOB_IMAGE")
    inside = ["podman", "run", "--rm", "-it", "-v", ".:/hvd", "-w", "/hvd", image] if image else []
    set_here = [f"{name}={variables[name]}" for name in _VARIABLES if variables.get(name)]
    words = ["env", *set_here] if set_here else []
    steps.append([*inside, *words, "./hvd", *_by_hand(arguments)])
    where = [here["os"], here["cpu"], f"{here['cores']} cores"]
    if variables.get("ImageOS"):
        # https://github.com/actions/runner-images: of GitHub's own runners
        where.append(f"runner image {variables['ImageOS']} {variables.get('ImageVersion', '')}")
    return [
        f"to repeat it: {' && '.join(map(shlex.join, steps))}",
        f"it ran on: {', '.join(where).strip()}",
    ]


def _by_hand(arguments: Sequence[str]) -> List[str]:
    if len(arguments) > 1 and arguments[0] == "ci" and arguments[1] in _BY_HAND:
        return [_BY_HAND[arguments[1]], *arguments[2:], "--engine", "spack"]
    return list(arguments)
